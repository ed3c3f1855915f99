// Package keyed is what sinks have in common that send several messages at once: those of an ordered key go one after the other, what is behind a failure is not sent, nothing is sent after the deadline, and a panic is
// one message's alone.
package keyed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

// Publish calls send for each message, at most n at a time, and returns what it said, in the order of the messages. Of those of an ordered key it calls it for one after the other; after one that failed it says [outbox.ErrOutage] of
// those behind it. Before each call it looks at ctx and at its deadline, and says [outbox.ErrOutage] of what is not sent for that. It returns when every call has.
func Publish(ctx context.Context, messages []outbox.Delivery, n int, send func(ctx context.Context, d *outbox.Delivery) error) []error {
	errs := make([]error, len(messages))
	lines := line(messages)
	next := make(chan []int, len(lines))
	for _, l := range lines {
		next <- l
	}
	close(next)
	var all sync.WaitGroup
	for range min(n, len(lines)) {
		all.Go(func() {
			for l := range next {
				sequence(ctx, messages, l, errs, send)
			}
		})
	}
	all.Wait()
	return errs
}

// line is the indices of the messages that are sent one after the other, each key's together.
func line(messages []outbox.Delivery) (lines [][]int) {
	type chain struct{ topic, key string }
	at := map[chain]int{}
	for i := range messages {
		d := &messages[i]
		if !d.Ordered {
			lines = append(lines, []int{i})
			continue
		}
		c := chain{d.Topic, d.Key}
		n, known := at[c]
		if !known {
			n = len(lines)
			at[c] = n
			lines = append(lines, nil)
		}
		lines[n] = append(lines[n], i)
	}
	return lines
}

func sequence(ctx context.Context, messages []outbox.Delivery, line []int, errs []error, send func(ctx context.Context, d *outbox.Delivery) error) {
	for n, i := range line {
		if errs[i] = one(ctx, &messages[i], send); errs[i] == nil {
			continue
		}
		for _, behind := range line[n+1:] {
			errs[behind] = outbox.Outage(errBehind)
		}
		return
	}
}

func one(ctx context.Context, d *outbox.Delivery, send func(ctx context.Context, d *outbox.Delivery) error) (err error) {
	if over := ended(ctx); over != nil {
		return outbox.Outage(fmt.Errorf("not sent: %w", over))
	}
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value}
		}
	}()
	return send(ctx, d)
}

// ended is why nothing may be sent any more: a process that was stopped may run on before the timer of its context has fired.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= 0 {
		return context.DeadlineExceeded
	}
	return nil
}
