// Package budget is waiting: how long somebody may still wait for an answer, and what may be started within that time.
//
// A [Budget] is a total duration with a reserve: time that is kept for answering, and for asking what became of a call whose outcome is unknown. It is divided
// among attempts and dependencies; an attempt whose stated minimum does not fit any more is not started, and back-off is paid from it. [Do] repeats
// what may be repeated: a call that was certainly not sent, or was refused for now; one whose outcome is unknown only where the caller has declared it
// idempotent. A [Throttle] bounds what all callers of a process repeat, and the mark of [NoRetry] leaves repeating to one layer of several, so
// that they do not multiply. [Budget.Explain] says where the time went.
//
// The end of a budget ends waiting and nothing else. It does not mean that the remote effect did not happen, that an attempt has stopped, or that a lease
// is over: those are the business of packages operation, worker and lease.
//
// Time is that of Go's monotonic clock and, on Linux, what the machine slept meanwhile, which that clock leaves out; steps of the wall clock change nothing. A budget that was slept through is spent: nothing is started
// under it and nothing sent, and its contexts end as soon as anything of it is looked at, with a cause that matches context.DeadlineExceeded: what was under way then may have been done. A wait that is going on does not wake by it: it ends when Go's clock says so. Durations cross process borders, instants never
// do: see [Wire].
package budget
