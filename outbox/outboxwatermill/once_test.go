package outboxwatermill_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/outbox/outboxwatermill"
)

type txKey struct{}

// notes is an inbox whose transaction is a list of effects.
type notes struct {
	known   map[string]bool
	effects []string
}

func (n *notes) once(ctx context.Context, id string, fn func(context.Context) error) (inbox.Result, error) {
	if n.known[id] {
		return inbox.Result{Repeated: true}, nil
	}
	var tx []string
	if err := fn(context.WithValue(ctx, txKey{}, &tx)); err != nil {
		return inbox.Result{}, err
	}
	n.known[id] = true
	n.effects = append(n.effects, tx...)
	return inbox.Result{}, nil
}

func work(m *message.Message) ([]*message.Message, error) {
	tx, ok := m.Context().Value(txKey{}).(*[]string)
	if !ok {
		return nil, errors.New("no transaction in the context")
	}
	*tx = append(*tx, string(m.Payload))
	return nil, nil
}

// TestOnce: the handler's effect is made once, in the inbox's transaction, and a failure is not noted.
func TestOnce(t *testing.T) {
	n := &notes{known: map[string]bool{}}
	failed := errors.New("failed")
	fail := true
	h := outboxwatermill.Once(n.once)(func(m *message.Message) ([]*message.Message, error) {
		produced, err := work(m)
		if fail {
			err = failed
		}
		return produced, err
	})
	m := message.NewMessageWithContext(t.Context(), "1", message.Payload("a"))
	if _, err := h(m); !errors.Is(err, failed) || len(n.effects) != 0 {
		t.Errorf("a failure: %v, %v", err, n.effects)
	}
	fail = false
	for range 2 {
		if _, err := h(m); err != nil {
			t.Error(err)
		}
	}
	if len(n.effects) != 1 || m.Context().Value(txKey{}) != nil {
		t.Errorf("effects %v; the transaction is left in the message: %v", n.effects, m.Context().Value(txKey{}) != nil)
	}
}

// TestOnceRefusesProduced: what a handler returns would be published outside of its transaction.
func TestOnceRefusesProduced(t *testing.T) {
	n := &notes{known: map[string]bool{}}
	h := outboxwatermill.Once(n.once)(func(m *message.Message) ([]*message.Message, error) {
		_, err := work(m)
		return []*message.Message{m}, err
	})
	if produced, err := h(message.NewMessage("1", nil)); !errors.Is(err, outboxwatermill.ErrProduced) || len(produced) > 0 || len(n.effects) > 0 || n.known["1"] {
		t.Errorf("%v, %v, %+v", produced, err, n)
	}
}

// TestOnceCatchesABrokenInbox: one that neither knows the message nor calls the handler, and then acknowledges it, would lose it.
func TestOnceCatchesABrokenInbox(t *testing.T) {
	h := outboxwatermill.Once(func(context.Context, string, func(context.Context) error) (inbox.Result, error) {
		return inbox.Result{}, nil
	})(work)
	if _, err := h(message.NewMessage("1", nil)); !errors.Is(err, outboxwatermill.ErrNotDone) {
		t.Errorf("%v", err)
	}
}
