package drill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
)

// mailVariant is one way in which a drill is played that is about messages.
type mailVariant struct {
	want  model.MailWant
	shows string
	play  func(ctx context.Context, p *mailRound) error
}

// mailDrill is what a run of a drill about messages has beside its processes: a consumer on a socket of this process's own, and the messages of the store.
type mailDrill struct {
	*conductor
	variants []mailVariant
	box      mailbox
	consumer *consumer

	mu     sync.Mutex
	played []model.PayRound
}

// playMail plays each variant as often as there are rounds, in one run, and has them judged.
func playMail(ctx context.Context, o Options, sc Scenario) (r Report, err error) {
	d := &mailDrill{variants: mailVariants(sc.Name, o.Unfenced)}
	all := o
	all.Rounds = o.Rounds * len(d.variants)
	sc.play, sc.arm = d.play, mailTables
	if d.conductor, err = prepare(ctx, all, sc); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.cleanUp(ctx)) }()
	if d.box, err = mailboxOf(d.store); err != nil {
		return r, err
	}
	if d.consumer, err = openConsumer(ctx, d.conductor); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.settle(ctx)) }()
	d.playAll(ctx)
	if err := d.consumer.close(ctx); err != nil || ctx.Err() != nil {
		return r, err
	}
	demand := model.MailDemand{Rounds: o.Rounds, Played: d.counted()}
	for _, v := range d.variants {
		demand.Variants = append(demand.Variants, v.want)
	}
	verdict, err := askJudge(ctx, o.Self, question{place: o.place(), Run: d.run, Mail: &demand})
	r = reportOf(verdict, d.failures)
	r.ReplayedRounds = len(d.void)
	if r.Mail = verdict.Mail; r.Mail != nil {
		for i := range r.Mail.Variants {
			r.Mail.Variants[i].Shows = d.variants[i].shows
		}
	}
	return r, err
}

// play plays a round of the variant whose turn it is, with a topic of its own.
func (d *mailDrill) play(ctx context.Context, r *round) error {
	at := (r.turn - 1) % len(d.variants)
	d.mu.Lock()
	d.played = append(d.played, model.PayRound{Round: r.n, Variant: at})
	d.mu.Unlock()
	p := &mailRound{round: r, d: d, topic: topicOf(d.run, r.n), relays: map[string]*process{}}
	p.takes(&habits{answer: func(letter) int { return 0 }})
	if err := d.variants[at].play(ctx, p); err != nil {
		return fmt.Errorf("%s: %w", d.variants[at].want.Name, err)
	}
	return nil
}

// counted are the rounds that were played, and whether they count.
func (d *mailDrill) counted() []model.PayRound {
	for i := range d.played {
		d.played[i].Void = slices.Contains(d.void, d.played[i].Round)
	}
	slices.SortFunc(d.played, func(a, b model.PayRound) int { return a.Round - b.Round })
	return d.played
}

// settle gives up what the run has left pending, so that no relay of every topic publishes it.
func (d *mailDrill) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBound)
	defer cancel()
	for _, round := range d.played {
		topic := topicOf(d.run, round.Round)
		for {
			left, err := d.box.List(ctx, outbox.ListRequest{Topic: topic, States: []outbox.State{outbox.Pending}, Limit: 1})
			if err == nil && len(left) > 0 {
				err = d.giveUp(ctx, topic)
			}
			if err != nil {
				return err
			}
			if len(left) == 0 {
				break
			}
			if !sleep(ctx, carrierPoll) {
				return fmt.Errorf("messages of topic %s are left pending: %w", topic, context.Cause(ctx))
			}
		}
	}
	return nil
}

// giveUp claims what can be claimed of a topic, and gives it up.
func (d *mailDrill) giveUp(ctx context.Context, topic string) error {
	b, err := d.box.Claim(ctx, outbox.ClaimRequest{Claim: lease.NewID(), Topics: []string{topic}, Limit: outbox.MaxBatch, Bytes: outbox.MaxBatchBytes, TTL: mailLong, MaxAttempts: outbox.MaxAttempts})
	if err != nil || len(b.Deliveries) == 0 {
		return err
	}
	req := outbox.SettleRequest{Claim: b.Claim}
	for _, m := range b.Deliveries {
		req.Verdicts = append(req.Verdicts, outbox.Verdict{Position: m.Position, Outcome: outbox.Failed, Error: "a drill has left it behind", Dead: true})
	}
	_, err = d.box.Settle(ctx, req)
	return err
}

// send appends letters in one transaction of the resource beside the store; own: to the table of those who keep an outbox by themselves.
func (p *mailRound) send(ctx context.Context, own bool, letters ...letter) error {
	var messages []outbox.Message
	for i := range letters {
		letters[i].ID = lease.NewID()
		m, err := letters[i].message(p.topic)
		if err != nil {
			return err
		}
		messages = append(messages, m)
	}
	return p.c.res.inTx(ctx, func(tx *sql.Tx) error {
		if !own {
			return appendIn(ctx, p.c.store, tx, messages...)
		}
		for i, l := range letters {
			if _, err := tx.ExecContext(ctx, p.c.res.sql(`INSERT INTO [letter] (round, n, id, message, chain, content, attempt, relay, until_ns, delivered) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, '', 0, false)`),
				p.n, i, l.ID.String(), l.Name, l.Key, l.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeMail writes what a drill about messages came to, for people.
func (r Report) writeMail(t io.Writer) {
	m := r.Mail
	for _, row := range []struct {
		what  string
		count int
	}{
		{"rounds of each variant", r.Rounds}, {"messages that arrived at the consumer", m.Deliveries}, {"  again", m.Repeated}, {"  and were not taken", m.Refused},
		{"effects in the consumer's table", m.Effects}, {"messages that were given up", m.Dead}, {"late settlements sent", m.LateSent}, {"  and recorded", m.LateTaken},
		{"rounds with damage", m.DamagedRounds},
	} {
		fmt.Fprintf(t, "%s\t%d\n", row.what, row.count)
	}
	for _, kind := range model.MailDamages() {
		if n := m.Damage[kind]; n > 0 {
			fmt.Fprintf(t, "  %s\t%d\n", kind, n)
		}
	}
	for _, v := range m.Variants {
		word := "ok"
		if !v.OK {
			word = "NOT ok"
		}
		fmt.Fprintf(t, "%s\t%s: %s\n", v.Name, word, v.Shows)
		fmt.Fprintf(t, "  \t%d arrivals, %d effects, damage in %d of %d rounds\n", v.Deliveries, v.Effects, v.Damaged, v.Rounds)
	}
	r.writeEnd(t, "what was to go wrong did not")
}

// mailScenarios are the drills about messages.
func mailScenarios() []Scenario {
	one := func(name, summary, shows, unfenced string) Scenario {
		return Scenario{Name: name, Summary: summary, Shows: shows, Unfenced: unfenced, Rounds: 2, Mail: true, atOnce: 6, needsStop: name != "poison", whole: playMail}
	}
	return []Scenario{
		one("dead-relay", "a relay is killed between its claim, its publication and its acknowledgement",
			"The resource is a consumer behind a socket, with a table of effects that has no key, and an inbox. A relay is killed by SIGKILL when the consumer has acknowledged a message and before that is recorded: another relay publishes it again, with the same id, when the claim has ended and not before, and the inbox makes that one effect. Killed between claim and publication, it is published by the other relay alone. Nothing is lost.",
			"A consumer without an inbox has two effects of one message; a relay that says that a message is published before it has published it loses it."),
		one("late-ack", "a relay is stopped before it acknowledges, and another one has claimed the message",
			"The consumer has acknowledged a message, and the relay is stopped by SIGSTOP before that is recorded. Its claim ends, and another relay has claimed the message: its publication has failed, or it is at work. The first goes on and says that it was published: that is late, changes nothing, and is told and counted. The message is delivered by the claim that followed.",
			"The outbox is a table of the application's own, and a message is marked by UPDATE ... SET delivered WHERE id. It is delivered although the claim that followed has failed, or is at work: what that comes to is overwritten."),
		one("paused-relay", "a relay is stopped before it sends the first of two messages, until another one has sent both",
			"The messages are ordered and have one key. A relay that is stopped by SIGSTOP before it looks at its deadline sends nothing when it goes on. One that is stopped between that look and the sending publishes the first message after the second: no relay can prevent that. With an inbox the consumer drops it, and its value is that of the second.",
			"A consumer without an inbox ends with the old value."),
		one("poison", "a message that always fails, or kills whoever sends it, among healthy ones",
			"One message is refused by the consumer each time, or for good, or the relay that sends it is killed by SIGKILL each time. The messages of other keys are delivered meanwhile. The poison goes to the dead letters, with its errors, after the bounded number of attempts, and what is behind it in its own key is delivered then. A dead letter whose reason is gone is delivered when it is retried.",
			"The outbox is a table of the application's own whose first message is tried until it is delivered. The messages of other keys wait for ever: they were not tried once while the poison was tried eight times."),
	}
}
