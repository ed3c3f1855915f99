//go:build unix

package supervise

import (
	"os"
	"syscall"
	"time"
)

// Config says what is run and for how long. All but Say is needed.
type Config struct {
	Guard   []string // the program and first arguments that call [Guard] with the arguments after them
	Path    string   // the command's file
	Args    []string // the command's arguments, its own name first
	Env     []string // the command's whole environment
	Files   [3]*os.File
	Grace   time.Duration        // from SIGTERM to SIGKILL, where there is time for it
	Reserve time.Duration        // from SIGKILL to the end of Left
	Left    func() time.Duration // for how long the command may go on, as known now; asked many times a second
	Ended   <-chan struct{}      // closed when the command is to be stopped even though something is left
	Signals *Signals             // what is handed on to the command's group
	Say     func(Incident)       // told of what a person should know while the command runs; may be nil
}

// Incident is something that a person should know while the command runs.
type Incident int

// The incidents.
const (
	Stopping  Incident = iota + 1 // the group was sent SIGTERM, because its time is or will soon be over
	Killing                       // the group is sent SIGKILL
	Denied                        // this user may not signal the command: it may outlive its time
	GuardDied                     // the guard is gone; the group is killed
)

// Result is what became of the command. When it is returned, nothing of the command's group is running, unless
// Denied or Remains say otherwise.
type Result struct {
	PID     int            // of the command, and the id of its group
	Code    int            // as a shell puts it: the exit status, or 128 + the signal
	Signal  syscall.Signal // that ended the command; 0 if it exited
	Stopped bool           // it was asked or made to stop because its time was or would soon be over
	Killed  bool           // SIGKILL was used
	Left    bool           // it ended and left others of its group running, which were stopped
	Guard   bool           // the guard died under it, so Code is 128 + SIGKILL by assumption
	Denied  bool           // a signal to the group was refused
	Remains bool           // the guard is gone, and after SIGKILL some of the group could still be seen
}
