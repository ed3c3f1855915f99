// Package outbox lets a message leave if and only if the transaction that wrote it has committed.
//
//   - A message is appended in the caller's own transaction, by the store's Append. What was rolled back was never there, and what commits late is not passed over: nothing goes by a position in a sequence.
//   - Relays claim messages until a deadline by the store's clock, publish them to a [Sink], and say what became of each. What they say counts only while no other claim has followed: a late acknowledgement
//     changes nothing, and is counted.
//   - A message is published at least once, each time with the same id. A relay that dies, or is stopped, after it has published and before it has acknowledged is followed by another that publishes again, and a
//     stopped one that goes on may publish an old message after a newer one of its key. Order, and once, hold where the consumer keeps an inbox: see package inbox.
//   - Messages of one topic and key that ask for it ([Message.Ordered]) are claimed in the order in which they were appended, by one relay at a time.
//   - A message that cannot be published goes to the dead letters after a bounded number of attempts, with its errors. Until then it holds up what is behind it under its own key, and nothing else.
//   - What was delivered is kept until it is pruned, and can be replayed.
//
// The relay itself is package relay; its sinks are in the packages below this one.
package outbox
