// Package supervise runs a command that must not outlive a right: a whole process group, stopped before
// an instant that is moved on for as long as the right is renewed.
//
// Three processes take part. The supervisor holds the right and calls [Run]. The guard, this program started
// again in a process group of its own ([Guard]), is the command's parent. The command leads a third group,
// so that one signal reaches all that it starts and nothing else.
//
// The guard, not the supervisor, stops the command: it knows the latest instant and keeps it with its
// own clock. So the command also ends in time when the supervisor hangs, is stopped, or sleeps through a
// suspend; and when the supervisor is killed, the socket between the two closes and the guard kills the group
// at once. If the guard is killed, the kernel kills the command (parent-death signal, on Linux), and
// the supervisor the rest of its group.
//
// What this cannot reach: a process that left the group (setsid), one that runs as a user whom this
// one may not signal (sudo), and one that the kernel does not let die (uninterruptible I/O). And if guard and
// supervisor are killed together, only the command itself dies for sure. The fence at the resource is
// for these.
//
// The package is for Unix systems. Elsewhere only the pure [Escalation] and the errors are built.
package supervise
