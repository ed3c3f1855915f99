// Package outboxnats publishes an outbox's messages to NATS JetStream. A message is published once a stream has acknowledged it. It carries the outbox message's id as Nats-Msg-Id, so that a stream drops what it is sent twice within its duplicate
// window; what comes again later than that, such as a replay, is stored again, and is one with the first only for a consumer with an inbox.
package outboxnats
