// Package relay carries messages from an outbox to a destination: it claims them until a deadline, hands them to a [outbox.Sink], and says what became of each.
//
// Any number of relays may run, in any number of processes, over one store. What a relay promises is what package outbox says: at least once, in the order of a key as far as no relay is stopped in the middle, each time with the same id.
//
//   - It looks at its clock before each hand-over, and hands over nothing once its claim may have ended: a relay that was stopped and goes on publishes at most what it had handed over already.
//   - A destination that takes nothing ([outbox.ErrOutage]) is held against no message: the relay gives them back, rests, for as long as the destination asks where it does ([outbox.OutageFor]), and tries again with one. A message that fails is tried again after a pause that grows, and is given up after
//     [Options.MaxAttempts]; the others are not delayed by it, but those behind it in its own key.
//   - It looks for work at once while it finds as much as it asked for, then when the store hints, and at the latest after [Options.Poll].
//   - A sink that has not returned when the claim is over is waited for, and told of: there is never a second call beside it. Others publish its messages meanwhile, and what it says in the end changes nothing.
//   - When its context ends it hands over nothing more, waits for what it has handed over, and gives the rest back.
package relay
