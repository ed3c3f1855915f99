package main

import (
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/internal/supervise"
	"github.com/tenure-go/tenure/lease"
)

// runOptions is a checked command line of `tenure run`.
type runOptions struct {
	names      []string
	argv       []string
	path       string // of the command's file
	ttl        time.Duration
	margin     time.Duration
	wait       time.Duration // 0: without limit, unless try
	try        bool
	minHold    time.Duration
	maxHold    time.Duration
	grace      time.Duration
	reserve    time.Duration
	busyExit   int
	owner      string
	passStore  bool
	statusFile string
	once       onceOptions
}

// minRunTTL leaves room for a renewal and a stop beside the margin.
const minRunTTL = time.Second

const runLong = `Acquires NAMES, all or none, runs CMD while they are held, and releases them when it has ended.

Waiting. Without --wait or --try it waits without limit, by polling. --wait bounds the wait; --try asks once. An outage of
the store is waited out, and said on standard error. What no repetition mends, such as a right that is missing, ends the
wait with exit code 77.

Connections. On PostgreSQL a run holds one connection while CMD runs, that for renewals, and takes a second one for the moment
of the release or of another acquire, and with --once of each record. pool_max_conns=1 in the URL is enough.

Stopping. CMD leads a process group of its own. When the lease is lost, revoked, or cannot be renewed, the group is
sent SIGTERM, and SIGKILL --grace later, in any case before the safe deadline, which is before the authority can
give the names to anybody else. The stop begins early enough to leave the grace. What CMD leaves running in its
group when it ends is stopped in the same way before the lease is released. A guard process keeps the deadline: it
also holds when this process is stopped, hangs or sleeps through a suspend, and if this process is killed the guard
kills the group at once (on Linux the command also dies with its guard). Out of reach are processes that leave the
group (setsid), that run as a user whom this one may not signal (sudo: put tenure behind it), or that the kernel
does not let die; let the resource check TENURE_CLAIM.

Signals. INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are handed on to the group; while waiting for the
names, the first four end the wait. What is ignored from the start (nohup) stays ignored. If standard input and
output are the terminal, the group gets the foreground, so that CMD can read and Ctrl-C reaches it. In a pipeline it
gets it when it reads from the terminal. Ctrl-Z stops both CMD and this process, which then renews nothing: unless
continued in time CMD is killed.

Environment of CMD. TENURE_COUNT is the number of names; TENURE_NAME_1, TENURE_TOKEN_1, TENURE_CLAIM_1 and so on
belong to each, in the order given. With a single name TENURE_NAME, TENURE_TOKEN and TENURE_CLAIM say the same. A
claim is what a resource checks. TENURE_STORE is removed unless --pass-store is given, which sets it to the store in
use.

--min-hold keeps the lease for at least that long after it was acquired, even if CMD ends sooner, so that a short
job does not run a second time elsewhere. INT, TERM, HUP or QUIT, now or before, end this: the lease is released at
once. A loss of the lease in this time changes nothing of the exit code.

--once KEY makes the run the occurrence KEY of NAME, such as the day of a nightly report: one that was done is not run
again, from whatever host, and the exit code is 0. An attempt is recorded in the store before CMD starts, and what became of
it when CMD has ended, as the operation NAME@KEY of the kind "run" (tenure op ls --kind run; in its id @ in NAME is %40, and
% is %25). The name and the key are the occurrence, the command line is not: a failed run may be mended and repeated under
its key.

CMD exits with 0: done. With another code: not done, and it may be run again, unless --once-final says that a failure is
final; it is for the next run to ask, nothing is repeated by itself. Ended by a signal, stopped with the lease, or never
heard of again, as when the host died: uncertain, it may have been done. Then the next run under the key runs nothing, exits
with 78 and names the host; look what was done, and tenure op resolve decides. --again says that CMD may safely run twice:
then an occurrence that is uncertain is run again, if all of its runs had --again. In progress elsewhere, it is waited for
as the lease is. CMD finds the id in TENURE_OPERATION, for its own effects, and the attempt's number in TENURE_ATTEMPT.
tenure op prune --forget forgets occurrences.

Exit codes. CMD's own; 128 + n if signal n ended it, or ended the wait; 75 not acquired (--busy-exit replaces it); 76 the
lease was lost while CMD was running, whatever CMD made of it; 77 the store was not reached, or the role may not use it; 78
the occurrence is uncertain, so nothing was run, or CMD was and its end could not be recorded; 1 with nothing run: the
occurrence has failed for good or was cancelled; 126 CMD cannot be run, 127 it is not found; 64 the command line makes no
sense. The last line on standard error says which and why; --json-status writes it to a file, which says "waiting" and
"running" before that.

JSON status: {"outcome": "waiting", "running", "exited", "signaled", "lost", "not_acquired", "no_store", "not_started" or
"interrupted", and with --once "done_before", "decided_before", "uncertain" or "unrecorded"; "exit_code", null until the
end; "text"; "store"; "owner"; "names"; "tokens", as strings; "acquisition"; "waited_ms"; "held_ms"; "command_pid";
"command_exit_code", null if it did not run to an end; "killed"; "released"; "lost": null or {"how", "reason"};
"occurrence": null or {"id", "state"}}. "how" is one of expired, superseded, revoked, closed, forgotten, uncertain,
max_hold.`

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run NAME... [flags] -- CMD [ARG...]",
		Short: "run a command while names are held",
		Long:  runLong,
		Example: `  tenure run nightly-report --wait 1m -- ./report.sh
  tenure run import --try --busy-exit 0 -- ./import.sh          # cron: another run is no failure
  tenure run tick --min-hold 50s --try -- ./tick.sh             # at most one run a minute
  tenure run nightly-report --once "$(date +%F)" --try -- ./report.sh   # from several hosts, done once a day
  tenure run db/a db/b --ttl 30s --grace 8s -- ./move.sh
  tenure run deploy --json-status deploy.json -- ./deploy.sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.take(args, cmd.ArgsLenAtDash(), cmd.Flags().Changed); err != nil {
				return err
			}
			return a.runUnderLease(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.ttl, "ttl", 15*time.Second, "how long the authority waits for a renewal; 1s to 24h. A third passes between renewals")
	f.DurationVar(&o.wait, "wait", 0, "wait at most this long for the names; without it and --try there is no limit")
	f.BoolVar(&o.try, "try", false, "ask once, do not wait")
	f.DurationVar(&o.minHold, "min-hold", 0, "keep the lease at least this long, even if CMD ends sooner")
	f.DurationVar(&o.maxHold, "max-hold", 0, "stop CMD and give up the lease after this long; 0: no such bound")
	f.DurationVar(&o.grace, "grace", 0, "from SIGTERM to SIGKILL, where there is time for it; default: a third of what is left when a renewal is due, at most 10s; 2.8s for a TTL of 15s")
	f.IntVar(&o.busyExit, "busy-exit", exitNotAcquired, "exit code for not acquired, 0 to 255")
	f.StringVar(&o.owner, "owner", "", "label for people, at most 256 bytes; default: user@host pid N")
	f.BoolVar(&o.passStore, "pass-store", false, "give CMD the store as TENURE_STORE")
	f.StringVar(&o.once.key, "once", "", "do nothing if the occurrence `KEY` of NAME was done; see above")
	f.BoolVar(&o.once.again, "again", false, "CMD may safely run twice: an occurrence that is uncertain is run again")
	f.BoolVar(&o.once.final, "once-final", false, "a run that fails is final: the occurrence is not run again")
	f.StringVar(&o.statusFile, "json-status", "", "write the outcome to this `FILE`, each time as a whole")
	return cmd
}

// take checks the command line. dash is how many arguments stand before "--".
func (o *runOptions) take(args []string, dash int, given func(flag string) bool) error {
	if dash < 0 {
		return usagef("put -- between the names and the command: tenure run NAME... -- CMD")
	}
	o.names, o.argv = args[:dash], args[dash:]
	if len(o.names) == 0 {
		return usagef("no name given: tenure run NAME... -- CMD")
	}
	if len(o.argv) == 0 || o.argv[0] == "" {
		return usagef("no command given: tenure run NAME... -- CMD")
	}
	for _, name := range o.names {
		if err := lease.CheckName(name); err != nil {
			return fmt.Errorf("name %q: %w", name, err)
		}
	}
	switch {
	case o.busyExit < 0 || o.busyExit > 255:
		return usagef("--busy-exit %d: want 0 to 255", o.busyExit)
	case o.try && given("wait"):
		return usagef("--try asks once and --wait waits: give one of them")
	case given("wait") && o.wait <= 0:
		return usagef("--wait %v: want a positive duration; --try does not wait at all", o.wait)
	case o.minHold < 0:
		return usagef("--min-hold %v: want 0 or more", o.minHold)
	case o.maxHold < 0:
		return usagef("--max-hold %v: want 0 for no bound, or more", o.maxHold)
	case o.maxHold > 0 && o.minHold > o.maxHold:
		return usagef("--min-hold %v is longer than --max-hold %v", o.minHold, o.maxHold)
	}
	if err := o.once.take(o.names, given); err != nil {
		return err
	}
	return o.takeTimes(given("grace"))
}

// takeTimes settles how the TTL is divided: margin, renewal, grace, reserve.
func (o *runOptions) takeTimes(graceGiven bool) error {
	if o.ttl < minRunTTL || o.ttl > lease.MaxTTL {
		return usagef("--ttl %v: want %v to %v", o.ttl, minRunTTL, lease.MaxTTL)
	}
	o.margin = max(o.ttl/10, 500*time.Millisecond) // the session's own default, stated here because room follows from it
	room := o.room()
	o.reserve = supervise.DefaultReserve(room)
	if !graceGiven {
		o.grace = supervise.DefaultGrace(room)
	}
	longest := room*3/4 - o.reserve // a quarter is left to bridge an outage of the authority
	if o.grace < 0 || o.grace > longest {
		return usagef("--grace %v: with --ttl %v want 0 to %v; a longer grace needs a longer TTL",
			o.grace, o.ttl, longest.Round(time.Millisecond))
	}
	if shortest := o.margin + o.grace + o.reserve; o.maxHold > 0 && o.maxHold <= shortest {
		return usagef("--max-hold %v: want more than %v, what margin and grace need of it", o.maxHold, shortest)
	}
	return nil
}

// room is what is left of the belief to hold when a renewal is due and all is well.
func (o *runOptions) room() time.Duration { return o.ttl - o.margin - o.ttl/3 }

// find looks for the command's file as a shell does, before anything is acquired for it.
func (o *runOptions) find() error {
	path, err := exec.LookPath(o.argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // found in the current folder by a PATH that asks for it, as a shell would
		return err
	}
	o.path = path
	return nil
}
