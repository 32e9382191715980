package api

import "time"

// Hasten shortens what an Await waits for.
func (c *Client) Hasten(open, watch, ping, answer time.Duration) {
	c.pace = pace{open, watch, ping, answer, 50 * time.Millisecond}
}
