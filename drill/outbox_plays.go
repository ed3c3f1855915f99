package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/outbox"
)

// mailRound is one round of a drill about messages. A is the relay that is late or is lost, B the one that follows, C the one that has the last word.
type mailRound struct {
	*round
	d     *mailDrill
	topic string

	relays map[string]*process // by name; under the consumer's lock
}

const (
	mailShort    = 700 * time.Millisecond // of claims that are to end
	mailLong     = 5 * time.Second        // of those that are not; what is left of them is waited for when the run ends
	mailAttempts = 20                     // where nothing is to be given up
)

// mailVariants are the variants of a drill about messages.
func mailVariants(name string, unfenced bool) []mailVariant {
	switch name {
	case "dead-relay":
		return deadRelayVariants(unfenced)
	case "late-ack":
		return lateAckVariants(unfenced)
	case "paused-relay":
		return pausedRelayVariants(unfenced)
	case "poison":
		return poisonVariants(unfenced)
	}
	return nil
}

// takes says how the consumer takes the messages of this round from now on.
func (p *mailRound) takes(h *habits) {
	h.kill = p.kill
	p.d.consumer.mu.Lock()
	defer p.d.consumer.mu.Unlock()
	p.d.consumer.habits[p.n] = h
}

// kill ends a relay, on behalf of the consumer.
func (p *mailRound) kill(relay string) {
	p.d.consumer.mu.Lock()
	proc := p.relays[relay]
	p.d.consumer.mu.Unlock()
	if proc != nil {
		proc.kill()
	}
}

// carrier starts a process and waits until it is ready; it does nothing yet.
func (p *mailRound) carrier(ctx context.Context, name string, s carrierSetup) (*process, error) {
	s.Topic = p.topic
	if s.TTL == 0 {
		s.TTL = millis(mailLong)
	}
	if s.Batch == 0 {
		s.Batch = 10
	}
	if s.Attempts == 0 {
		s.Attempts = mailAttempts
	}
	proc, err := launch(p.c.o.Self, setup{place: p.c.o.place(), Run: p.c.run, Name: name, Round: p.n, Role: roleCarrier, Service: p.d.consumer.base, Mail: &s})
	if err != nil {
		return nil, err
	}
	p.procs = append(p.procs, proc)
	p.d.consumer.mu.Lock()
	p.relays[name] = proc
	p.d.consumer.mu.Unlock()
	return proc, steps(ctx, proc, command{Op: opServe})
}

// begins orders a process to relay.
func begins(ctx context.Context, proc *process) error { return steps(ctx, proc, command{Op: opDo}) }

// stoppedAt has proc relay until it stops where it is to. One that does not stop was too slow for its claim.
func (p *mailRound) stoppedAt(ctx context.Context, proc *process) (<-chan reply, error) {
	answer, err := proc.order(command{Op: opDo})
	if err != nil {
		return nil, err
	}
	err = proc.awaitStopped(ctx, answer)
	var did *workerError
	if errors.As(err, &did) {
		err = fmt.Errorf("%w: %w", errTooSlow, err)
	}
	if err == nil {
		err = p.c.probe(ctx)
	}
	if err != nil {
		return nil, err
	}
	return answer, p.event(ctx, model.Stopped)
}

func (p *mailRound) event(ctx context.Context, what model.What) error {
	return p.c.res.saw(ctx, model.Event{Round: p.n, Token: 1, What: what, At: p.c.now()})
}

// goOn continues a stopped process, and waits until it has said what it had to say.
func (p *mailRound) goOn(ctx context.Context, proc *process, answer <-chan reply) error {
	if err := p.event(ctx, model.Continued); err != nil {
		return err
	}
	p.sent = true
	if err := resume(proc.cmd.Process.Pid); err != nil {
		return proc.gone("continuing", err)
	}
	_, err := proc.await(ctx, opDo, answer)
	return err
}

// both starts A, which stops at a point, and B, which relays once after that.
func (p *mailRound) both(ctx context.Context, first, second carrierSetup) (a, b *process, answer <-chan reply, err error) {
	first.TTL, first.Once, second.Once = millis(mailShort), true, true
	if b, err = p.carrier(ctx, "B", second); err != nil {
		return nil, nil, nil, err
	}
	if a, err = p.carrier(ctx, "A", first); err != nil {
		return nil, nil, nil, err
	}
	answer, err = p.stoppedAt(ctx, a)
	return a, b, answer, err
}

// The letters of a round with one key.
func firstLetters(n int) []letter {
	return []letter{{Name: "first", Key: "k", Value: 1}, {Name: "second", Key: "k", Value: 2}}[:n]
}

func deadRelayVariants(unfenced bool) []mailVariant {
	killed := []model.What{model.Stopped, model.Killed}
	if unfenced {
		return []mailVariant{
			{shows: "a consumer without an inbox does it twice", play: playDeadRelay(pointPublished, true),
				want: model.MailWant{Name: "no-inbox", Damage: model.EffectTwice, Saw: killed}},
			{shows: "who settles before it publishes loses the message", play: playSettlesFirst,
				want: model.MailWant{Name: "settles-first", Damage: model.MailLost, Saw: killed}},
		}
	}
	once := map[string]string{"first": "delivered 2"}
	return []mailVariant{
		{shows: "published again by another relay, after the deadline, with the same id: one effect", play: playDeadRelay(pointPublished, false),
			want: model.MailWant{Name: "after-publish", Saw: append(killed, model.ClaimTill), Messages: once, Deliveries: []string{"A/1 first", "B/2 first"}}},
		{shows: "published by another relay, after the deadline", play: playDeadRelay(pointClaimed, false),
			want: model.MailWant{Name: "before-publish", Saw: append(killed, model.ClaimTill), Messages: once, Deliveries: []string{"B/2 first"}}},
	}
}

// playDeadRelay kills A at a point, and has B go on.
func playDeadRelay(at point, forgets bool) func(ctx context.Context, p *mailRound) error {
	return func(ctx context.Context, p *mailRound) error {
		p.takes(&habits{forgets: forgets, answer: func(letter) int { return 0 }})
		if err := p.send(ctx, false, firstLetters(1)...); err != nil {
			return err
		}
		a, b, _, err := p.both(ctx, carrierSetup{Stop: at}, carrierSetup{})
		if err != nil {
			return err
		}
		p.sent = true
		a.kill()
		return errors.Join(p.event(ctx, model.Killed), begins(ctx, b))
	}
}

// playSettlesFirst kills A, which has said that the message was published, and has not published it.
func playSettlesFirst(ctx context.Context, p *mailRound) error {
	if err := p.send(ctx, false, firstLetters(1)...); err != nil {
		return err
	}
	a, err := p.carrier(ctx, "A", carrierSetup{Stop: pointHanding, Manner: mannerSettlesFirst})
	if err != nil {
		return err
	}
	if _, err := p.stoppedAt(ctx, a); err != nil {
		return err
	}
	p.sent = true
	a.kill()
	return p.event(ctx, model.Killed)
}

func lateAckVariants(unfenced bool) []mailVariant {
	saw := []model.What{model.Stopped, model.Continued, model.ClaimTill}
	late := []string{"A"}
	if unfenced {
		return []mailVariant{
			{shows: "marked as delivered, although the claim that followed has failed", play: playLateAckFailed(mannerOwnTable),
				want: model.MailWant{Name: "own-table-failed", Damage: model.AckedStale, Saw: saw, Late: late, Refused: map[string]int{"first": 1}}},
			{shows: "marked as delivered, although somebody else is at work on it", play: playLateAckAtWork(mannerOwnTable),
				want: model.MailWant{Name: "own-table-at-work", Damage: model.AckedStale, Saw: saw, Late: late}},
		}
	}
	told := map[string]string{"A": "late, the relay has counted 1"}
	return []mailVariant{
		{shows: "the claim that followed has failed: so it stays, until the next one has delivered", play: playLateAckFailed(""),
			want: model.MailWant{Name: "failed", Saw: saw, Late: late, Told: told, Refused: map[string]int{"first": 1}, Messages: map[string]string{"first": "delivered 3"},
				Deliveries: []string{"A/1 first", "B/2 first refused", "C/3 first"}, Errors: map[string]string{"first": ""}}},
		{shows: "the claim that followed is at work: it delivers", play: playLateAckAtWork(""),
			want: model.MailWant{Name: "at-work", Saw: saw, Late: late, Told: told, Messages: map[string]string{"first": "delivered 2"}, Deliveries: []string{"A/1 first", "B/2 first"}}},
	}
}

// playLateAckFailed stops A before it acknowledges, until B's publication has failed. C delivers afterwards.
func playLateAckFailed(m manner) func(ctx context.Context, p *mailRound) error {
	return func(ctx context.Context, p *mailRound) error {
		p.takes(&habits{answer: func(l letter) int {
			if l.Relay == "B" {
				return statusSick
			}
			return 0
		}})
		if err := p.send(ctx, m == mannerOwnTable, firstLetters(1)...); err != nil {
			return err
		}
		a, b, answer, err := p.both(ctx, carrierSetup{Stop: pointPublished, Manner: m}, carrierSetup{Manner: m})
		if err != nil {
			return err
		}
		c, err := p.carrier(ctx, "C", carrierSetup{Once: true})
		if err != nil {
			return err
		}
		if err := errors.Join(begins(ctx, b), p.goOn(ctx, a, answer)); err != nil || m == mannerOwnTable {
			return err
		}
		return begins(ctx, c)
	}
}

// playLateAckAtWork stops A before it acknowledges, and B before it sends, in a claim that is the current one; A goes on first.
func playLateAckAtWork(m manner) func(ctx context.Context, p *mailRound) error {
	return func(ctx context.Context, p *mailRound) error {
		if err := p.send(ctx, m == mannerOwnTable, firstLetters(1)...); err != nil {
			return err
		}
		a, b, answer, err := p.both(ctx, carrierSetup{Stop: pointPublished, Manner: m}, carrierSetup{Stop: pointHanding, Manner: m})
		if err != nil {
			return err
		}
		second, err := p.stoppedAt(ctx, b)
		if err != nil {
			return err
		}
		if err := p.goOn(ctx, a, answer); err != nil {
			return err
		}
		return p.goOn(ctx, b, second)
	}
}

func pausedRelayVariants(unfenced bool) []mailVariant {
	saw := []model.What{model.Stopped, model.Continued, model.ClaimTill}
	late := []string{"A"}
	if unfenced {
		return []mailVariant{{shows: "the old value is what is left", play: playPausedRelay(pointHanding, true),
			want: model.MailWant{Name: "no-inbox", Damage: model.OldOverNew, Saw: saw, Late: late}}}
	}
	both := map[string]string{"first": "delivered 2", "second": "delivered 1"}
	told := map[string]string{"A": "late, the relay has counted 1"}
	return []mailVariant{
		{shows: "it looks at its deadline, and sends nothing", play: playPausedRelay(pointClaimed, false),
			want: model.MailWant{Name: "before-the-look", Saw: saw, Late: late, Told: told, Messages: both, Deliveries: []string{"B/2 first", "B/1 second"}}},
		{shows: "it has looked, and sends the first after the second: the inbox drops it", play: playPausedRelay(pointHanding, false),
			want: model.MailWant{Name: "after-the-look", Saw: saw, Late: late, Told: told, Messages: both, Deliveries: []string{"B/2 first", "B/1 second", "A/1 first"}}},
	}
}

// playPausedRelay stops A before it sends the first message, until B has published both.
func playPausedRelay(at point, forgets bool) func(ctx context.Context, p *mailRound) error {
	return func(ctx context.Context, p *mailRound) error {
		p.takes(&habits{forgets: forgets, answer: func(letter) int { return 0 }})
		if err := p.send(ctx, false, firstLetters(2)...); err != nil {
			return err
		}
		a, b, answer, err := p.both(ctx, carrierSetup{Stop: at, Batch: 1}, carrierSetup{})
		if err != nil {
			return err
		}
		if err := begins(ctx, b); err != nil {
			return err
		}
		if err := p.ended(ctx); err != nil {
			return err
		}
		return p.goOn(ctx, a, answer)
	}
}

// pending reports whether a message of the round is.
func (p *mailRound) pending(ctx context.Context) (bool, error) {
	left, err := p.d.box.List(ctx, outbox.ListRequest{Topic: p.topic, States: []outbox.State{outbox.Pending}, Limit: 1})
	return len(left) > 0, err
}

// ended waits until no message of the round is pending.
func (p *mailRound) ended(ctx context.Context) error {
	return waiting(ctx, "the end of every message", func() (bool, error) {
		left, err := p.pending(ctx)
		return !left, err
	})
}
