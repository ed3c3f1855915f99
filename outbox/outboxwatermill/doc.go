// Package outboxwatermill joins an outbox and an inbox to Watermill: [Sink] publishes through any message.Publisher, and [Once] is a middleware of message.Router by which a consumer's effect is made once.
//
// A Watermill message carries the outbox message's id as its UUID, the same on each delivery: that is what the inbox goes by.
package outboxwatermill
