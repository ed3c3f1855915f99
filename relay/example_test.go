package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/memory"
)

// printer is a destination of one's own. It sends one message after the other, so that what is ordered is in order.
type printer struct{ printed chan<- string }

// Publish looks at the context before each message: after the claim's deadline the rest is another relay's.
func (p printer) Publish(ctx context.Context, messages []outbox.Delivery) []error {
	results := make([]error, len(messages))
	type chain struct{ topic, key string }
	held := map[chain]bool{} // keys whose earlier message was not printed
	for i, d := range messages {
		c := chain{d.Topic, d.Key}
		deadline, limited := ctx.Deadline()
		switch {
		case ctx.Err() != nil || limited && time.Until(deadline) <= 0:
			results[i] = outbox.Outage(errors.New("no time left")) // nothing is held against the message
		case d.Ordered && held[c]:
			results[i] = outbox.Outage(errors.New("behind one that was not printed"))
		case len(d.Payload) == 0:
			results[i] = outbox.Refused(errors.New("there is nothing to print")) // it goes to the dead letters
		default:
			p.printed <- fmt.Sprintf("%s %s: %s", d.Topic, d.Key, d.Payload)
		}
		held[c] = held[c] || results[i] != nil
	}
	return results
}

// A relay carries what an application appends to a destination of its own, until it is told to end.
func ExampleRelay_Run() {
	store := memory.NewOutbox(memory.Options{}) // an application's is (*sqlite.Store).Outbox or (*postgres.Store).Outbox, and it appends in its own transactions
	printed := make(chan string)
	r, err := relay.New(store, printer{printed}, relay.Options{Name: "printer"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()

	if _, err := store.Append(ctx, []outbox.Message{{Topic: "tickets", Key: "order-1001", Ordered: true, Payload: []byte("seat A1")}, {Topic: "tickets", Key: "order-1001", Ordered: true, Payload: []byte("seat A2")}}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-printed)
	fmt.Println(<-printed)

	cancel() // what is being printed is waited for, and recorded
	fmt.Println(<-ended, r.Stats().Published)
	// Output:
	// tickets order-1001: seat A1
	// tickets order-1001: seat A2
	// <nil> 2
}
