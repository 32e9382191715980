package api

import "time"

// Hasten shortens what an Await waits for.
func (c *Client) Hasten(open, watch, ping, answer time.Duration) {
	c.pace = pace{open, watch, time.Minute, ping, answer, 50 * time.Millisecond}
}

// HastenFailed shortens the time until what failed is asked for again.
func (c *Client) HastenFailed(failed time.Duration) { c.pace.failed = failed }

// Age makes what v holds older.
func (v *View) Age(by time.Duration) { v.whole = v.whole.Add(-by) }
