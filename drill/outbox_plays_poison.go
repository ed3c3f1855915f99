package drill

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

const (
	poisonAttempts = 3
	killerAttempts = 4                       // after two claims in a row that expired a message is handed out alone: it kills alone as well
	poisonTries    = 8                       // without a bound it is tried so often, and then the round is over
	killerTTL      = 1500 * time.Millisecond // a killed relay's claim is to end soon, but a busy machine is to kill it within
)

func poisonVariants(unfenced bool) []mailVariant {
	if unfenced {
		return []mailVariant{
			{shows: "the first message is tried until it is delivered, and all others wait", play: playHeadOfLine(statusSick),
				want: model.MailWant{Name: "own-table", Damage: model.HeldUp, Refused: map[string]int{"poison": poisonTries}}},
			{shows: "the first message kills each relay, and all others wait", play: playHeadOfLine(statusKill),
				want: model.MailWant{Name: "own-table-kills", Damage: model.HeldUp, Saw: []model.What{model.Killed}, Refused: map[string]int{"poison": poisonTries}}},
		}
	}
	want := func(name string, attempts int, because string) model.MailWant {
		dead := fmt.Sprintf("dead %d", attempts)
		return model.MailWant{Name: name, Refused: map[string]int{"poison": attempts, "cured": attempts},
			Messages: map[string]string{"poison": dead, "cured": "delivered 1", "behind": "delivered 1", "well": "delivered 1", "well-too": "delivered 1"},
			Errors:   map[string]string{"poison": because}, After: map[string]string{"behind": "poison"}}
	}
	failing := want("fails", poisonAttempts, "500")
	failing.Before = map[string]string{"well": "poison", "well-too": "poison"}
	return []mailVariant{
		{shows: "tried three times, and then a dead letter; a retried one is delivered", play: playPoison(statusSick), want: failing},
		{shows: "refused for good: a dead letter at once; a retried one is delivered", play: playPoison(statusRefused), want: want("refused", 1, "422")},
		{shows: "it has killed four relays, and is a dead letter; the others are delivered", play: playKiller,
			want: model.MailWant{Name: "kills", Saw: []model.What{model.Killed}, Refused: map[string]int{"poison": killerAttempts},
				Messages: map[string]string{"poison": fmt.Sprintf("dead %d", killerAttempts), "behind": "delivered", "well": "delivered", "well-too": "delivered"},
				Errors:   map[string]string{"poison": outbox.Expired}, After: map[string]string{"behind": "poison"}}},
	}
}

// poisoned are the letters of a round with a poison, the poison first.
func poisoned() []letter {
	return []letter{{Name: "poison", Key: "p", Value: 1}, {Name: "behind", Key: "p", Value: 2}, {Name: "well", Key: "w", Value: 1}, {Name: "well-too", Key: "v", Value: 1}}
}

// playPoison has the consumer refuse two messages, until both are given up; the reason of one goes away, and it is retried.
func playPoison(status int) func(ctx context.Context, p *mailRound) error {
	return func(ctx context.Context, p *mailRound) error {
		var cured atomic.Bool
		p.takes(&habits{answer: func(l letter) int {
			if l.Name == "poison" || l.Name == "cured" && !cured.Load() {
				return status
			}
			return 0
		}})
		letters := append(poisoned(), letter{Name: "cured", Key: "c", Value: 1})
		if err := p.send(ctx, false, letters...); err != nil {
			return err
		}
		if _, err := p.relaying(ctx, "A", carrierSetup{Attempts: poisonAttempts}); err != nil {
			return err
		}
		if err := p.ended(ctx); err != nil {
			return err
		}
		cured.Store(true)
		n, err := p.d.box.Retry(ctx, outbox.MoveRequest{IDs: []fence.ID{letters[len(letters)-1].ID}, Topic: p.topic, Limit: 1})
		if err == nil && n != 1 {
			err = fmt.Errorf("%w: of one dead letter %d were retried", ErrProcess, n)
		}
		return errors.Join(err, p.ended(ctx))
	}
}

// relaying starts a carrier that relays until it is killed.
func (p *mailRound) relaying(ctx context.Context, name string, s carrierSetup) (*process, error) {
	proc, err := p.carrier(ctx, name, s)
	if err == nil {
		_, err = proc.order(command{Op: opDo})
	}
	return proc, err
}

// killing has the consumer kill each relay that sends the poison.
func (p *mailRound) killing() {
	p.takes(&habits{answer: func(l letter) int {
		if l.Name == "poison" {
			return statusKill
		}
		return 0
	}})
}

// playKiller starts a relay after the other, as a supervisor does, until no message is pending.
func playKiller(ctx context.Context, p *mailRound) error {
	p.killing()
	if err := p.send(ctx, false, poisoned()...); err != nil {
		return err
	}
	for n := 1; n <= killerAttempts; n++ {
		if err := p.killed(ctx, fmt.Sprintf("R%d", n), carrierSetup{TTL: millis(killerTTL), Attempts: killerAttempts}); err != nil {
			return err
		}
	}
	if _, err := p.relaying(ctx, "last", carrierSetup{TTL: millis(killerTTL), Attempts: killerAttempts}); err != nil {
		return err
	}
	return p.ended(ctx)
}

// killed starts a relay, and waits until the consumer has killed it, or there is nothing left that could.
func (p *mailRound) killed(ctx context.Context, name string, s carrierSetup) error {
	proc, err := p.relaying(ctx, name, s)
	if err != nil {
		return err
	}
	gone := false
	err = waiting(ctx, "the end of a relay", func() (bool, error) {
		select {
		case <-proc.ended:
			gone = true
			return true, nil
		default:
		}
		if s.Manner == mannerOwnTable {
			return false, nil
		}
		left, err := p.pending(ctx)
		return !left, err
	})
	if err != nil || !gone {
		return err
	}
	return p.event(ctx, model.Killed)
}

// playHeadOfLine has relays of a table of the application's own try the first message, until it was tried often.
func playHeadOfLine(status int) func(ctx context.Context, p *mailRound) error {
	return func(ctx context.Context, p *mailRound) error {
		p.takes(&habits{answer: func(l letter) int {
			if l.Name == "poison" {
				return status
			}
			return 0
		}})
		if err := p.send(ctx, true, poisoned()...); err != nil {
			return err
		}
		s := carrierSetup{TTL: millis(killerTTL) / 4, Manner: mannerOwnTable}
		if status == statusKill {
			for n := 1; n <= poisonTries; n++ {
				if err := p.killed(ctx, fmt.Sprintf("R%d", n), s); err != nil {
					return err
				}
			}
			return nil
		}
		if _, err := p.relaying(ctx, "A", s); err != nil {
			return err
		}
		return waiting(ctx, "many tries", func() (bool, error) {
			n, err := p.d.consumer.arrived(ctx, p.n, "poison")
			return n >= poisonTries, err
		})
	}
}
