// Package outboxhttp posts an outbox's messages to a webhook, signed, and verifies them where they arrive.
//
// The headers webhook-id, webhook-timestamp and webhook-signature are those of the Standard Webhooks specification (version v1, HMAC-SHA256; github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md), so that its libraries in other
// languages verify them too. The id is the message's, the same on each delivery: it is what the receiver's inbox goes by. Nothing but id, time and body is signed.
package outboxhttp
