package api

import "time"

// Hasten shortens what an Await waits for.
func (c *Client) Hasten(open, watch, ping, answer time.Duration) {
	c.pace = pace{open, watch, time.Minute, ping, answer, 50 * time.Millisecond, 0}
}

// HastenFailed shortens the time until what failed is asked for again.
func (c *Client) HastenFailed(failed time.Duration) { c.pace.failed = failed }

// Part sets how far apart Views are.
func (c *Client) Part(apart time.Duration) { c.pace.apart = apart }

// Age makes what v holds older.
func (v *View) Age(by time.Duration) { v.whole = v.whole.Add(-by) }

// Taken is when v was asked for.
func (v *View) Taken() time.Time { return v.taken }
