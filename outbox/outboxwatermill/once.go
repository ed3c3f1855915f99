package outboxwatermill

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/tenure-go/tenure/inbox"
)

// Inbox does fn once for a message id, in a transaction of the application's own, which it hands to fn in fn's context; it commits if fn returns nil, and rolls back and returns fn's error otherwise. With a store's Once it is a few lines: see the example.
type Inbox func(ctx context.Context, messageID string, fn func(ctx context.Context) error) (inbox.Result, error)

// Once returns a middleware of message.Router behind which a handler's effect in the inbox's database is made once. It goes by the message's UUID. A repeated message is acknowledged, and its handler is not called. The handler's message has the
// context that the inbox gives, in which it finds its transaction.
//
// An error of the handler, or of the inbox, is the middleware's, so that the message is delivered again. A handler that returns messages fails with [ErrProduced]: the router publishes these after the transaction, and when that fails the redelivery
// is a repeated one, which publishes nothing.
//
// Put it inside of a middleware that tries again (middleware.Retry is added before it), not around one, or all tries share one transaction.
func Once(in Inbox) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			outer := m.Context()
			defer m.SetContext(outer)
			called := false
			result, err := in(outer, m.UUID, func(ctx context.Context) error {
				called = true
				m.SetContext(ctx)
				produced, err := h(m)
				if err == nil && len(produced) > 0 {
					err = ErrProduced
				}
				return err
			})
			if err == nil && !called && !result.Repeated {
				err = ErrNotDone
			}
			return nil, err
		}
	}
}
