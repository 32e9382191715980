package node

import (
	"syscall"
	"time"
)

// Unit is one program that process 1 runs for the node.
type Unit struct {
	Name string
	Argv []string // the first is the program's path inside of the node
	Env  []string
	Log  string // file inside of the node that both outputs are appended to
	// Restart runs it again RestartDelay after each exit, until Stop.
	Restart bool
}

// RestartDelay is how long a Unit with Restart stays down.
const RestartDelay = time.Second

// Status is what process 1 knows of one unit.
type Status struct {
	Name    string
	PID     int       // inside of the node; 0: does not run
	Started time.Time // of the last start
	Exited  time.Time // of the last exit, zero: none yet
	Exit    string    // how the last one ended: "exit 1", "signal killed"; empty: none yet
	Starts  int
}

// Stop names a unit and how to end it.
type Stop struct {
	Name   string
	Signal syscall.Signal
	// Wait is how long the unit may take before it is killed; 0: the call
	// returns at once and kills nobody.
	Wait time.Duration
	// Keep leaves the unit's Restart in force.
	Keep bool
}
