package keyed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/internal/keyed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ordered(texts ...string) (all []outbox.Delivery) {
	for i, text := range texts {
		all = append(all, outbox.Delivery{Message: outbox.Message{Topic: "t", Key: text[:1], Ordered: true, Payload: []byte(text)}, Position: int64(i + 1)})
	}
	return all
}

type publish func(ctx context.Context, messages []outbox.Delivery, n int, send func(ctx context.Context, d *outbox.Delivery) error) []error

// sends runs p, whose sender fails for bad and panics for awful, and says what was sent with success and what became of all.
func sends(ctx context.Context, p publish, all []outbox.Delivery) (sent []string, errs []error) {
	var mu sync.Mutex
	errs = p(ctx, all, 4, func(_ context.Context, d *outbox.Delivery) error {
		text := string(d.Payload)
		switch text[1:] {
		case "bad":
			return errors.New("bad")
		case "awful":
			panic("awful")
		}
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, text)
		return nil
	})
	return sent, errs
}

type stopped struct{ context.Context }

func (stopped) Deadline() (time.Time, bool) { return time.Now(), true }

// holds checks what Publish promises, by name.
func holds(name string, p publish) error {
	ctx := context.Background()
	switch name {
	case "order":
		sent, errs := sends(ctx, p, ordered("a1", "b1", "a2", "a3", "b2"))
		a := slices.DeleteFunc(slices.Clone(sent), func(s string) bool { return s[0] != 'a' })
		if len(sent) != 5 || !slices.IsSorted(a) || errors.Join(errs...) != nil {
			return fmt.Errorf("sent %v: %v", sent, errs)
		}
	case "behind":
		sent, errs := sends(ctx, p, ordered("a1", "abad", "a3", "b1"))
		slices.Sort(sent)
		if fmt.Sprint(sent) != "[a1 b1]" || errs[0] != nil || errs[1] == nil || errors.Is(errs[1], outbox.ErrOutage) || !errors.Is(errs[2], outbox.ErrOutage) || errs[3] != nil {
			return fmt.Errorf("sent %v: %v", sent, errs)
		}
	case "panic":
		sent, errs := sends(ctx, p, ordered("aawful", "b1"))
		var panicked *keyed.PanicError
		if fmt.Sprint(sent) != "[b1]" || !errors.As(errs[0], &panicked) || errs[1] != nil {
			return fmt.Errorf("sent %v: %v", sent, errs)
		}
	case "deadline":
		sent, errs := sends(stopped{ctx}, p, ordered("a1", "b1"))
		if len(sent) > 0 || !errors.Is(errs[0], outbox.ErrOutage) || !errors.Is(errs[1], outbox.ErrOutage) {
			return fmt.Errorf("sent %v: %v", sent, errs)
		}
	case "limit":
		var mu sync.Mutex
		now, most := 0, 0
		p(ctx, ordered("a1", "b1", "c1", "d1", "e1", "f1"), 2, func(context.Context, *outbox.Delivery) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		})
		if most > 2 {
			return fmt.Errorf("%d at once", most)
		}
	}
	return nil
}

func TestPublish(t *testing.T) {
	for _, name := range []string{"order", "behind", "panic", "deadline", "limit"} {
		if err := holds(name, keyed.Publish); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBrokenTwinsAreCaught: each by the promise that it breaks.
func TestBrokenTwinsAreCaught(t *testing.T) {
	for name, p := range map[string]publish{
		"order": func(ctx context.Context, all []outbox.Delivery, n int, send func(context.Context, *outbox.Delivery) error) []error {
			all = slices.Clone(all)
			slices.Reverse(all)
			return keyed.Publish(ctx, all, n, send)
		},
		"behind": func(ctx context.Context, all []outbox.Delivery, n int, send func(context.Context, *outbox.Delivery) error) (errs []error) {
			for i := range all {
				errs = append(errs, keyed.Publish(ctx, all[i:i+1], n, send)...)
			}
			return errs
		},
		"panic": func(ctx context.Context, all []outbox.Delivery, _ int, send func(context.Context, *outbox.Delivery) error) []error {
			errs := make([]error, len(all))
			defer func() { _ = recover() }()
			for i := range all {
				errs[i] = send(ctx, &all[i])
			}
			return errs
		},
		"deadline": func(_ context.Context, all []outbox.Delivery, n int, send func(context.Context, *outbox.Delivery) error) []error {
			return keyed.Publish(context.Background(), all, n, send)
		},
	} {
		if err := holds(name, p); err == nil {
			t.Errorf("%s: the twin passes", name)
		}
	}
}
