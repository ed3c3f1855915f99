package drill

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

// mailbox is what a store keeps of messages.
type mailbox interface {
	outbox.Store
	outbox.Office
}

// mailboxOf are the messages of a store.
func mailboxOf(a authority) (mailbox, error) {
	switch s := a.(type) {
	case *sqlite.Store:
		return s.Outbox(), nil
	case *postgres.Store:
		return s.Outbox(), nil
	}
	return nil, fmt.Errorf("%w: %T keeps no messages", ErrProcess, a)
}

// appendIn is the store's own AppendTx, in a transaction of the resource beside it.
func appendIn(ctx context.Context, a authority, tx *sql.Tx, messages ...outbox.Message) (err error) {
	switch s := a.(type) {
	case *sqlite.Store:
		_, err = s.Outbox().AppendTx(ctx, tx, messages...)
	case *postgres.Store:
		_, err = s.Outbox().AppendSQL(ctx, tx, messages...)
	default:
		err = fmt.Errorf("%w: %T keeps no messages", ErrProcess, a)
	}
	return err
}

// once is a store's own Once, in a transaction of the consumer's tables beside it.
type once func(ctx context.Context, tx *sql.Tx, consumer, id string, fn func(ctx context.Context) error) (inbox.Result, error)

func onceOf(a authority) (once, error) {
	switch s := a.(type) {
	case *sqlite.Store:
		in, err := s.Inbox(inbox.Options{})
		return func(ctx context.Context, tx *sql.Tx, consumer, id string, fn func(ctx context.Context) error) (inbox.Result, error) {
			return in.Once(ctx, tx, consumer, id, fn)
		}, err
	case *postgres.Store:
		in, err := s.Inbox(inbox.Options{})
		return func(ctx context.Context, tx *sql.Tx, consumer, id string, fn func(ctx context.Context) error) (inbox.Result, error) {
			return in.OnceSQL(ctx, tx, consumer, id, fn)
		}, err
	}
	return nil, fmt.Errorf("%w: %T keeps no inbox", ErrProcess, a)
}

// letter is what the drill sends: it travels as the payload of a message, and from a relay to the consumer with what the relay adds.
type letter struct {
	Name  string `json:"name"`
	Key   string `json:"key"`
	Value int    `json:"value"` // of the key; it rises from message to message

	ID      fence.ID `json:"id"`
	Attempt int      `json:"attempt,omitempty"`
	Relay   string   `json:"relay,omitempty"`
}

// topicOf is the topic of a round.
func topicOf(run string, round int) string { return nameOf(run, round) + "/letters" }

// message is the letter as an outbox keeps it.
func (l letter) message(topic string) (outbox.Message, error) {
	text, err := json.Marshal(l)
	return outbox.Message{ID: l.ID, Topic: topic, Key: l.Key, Ordered: true, Payload: text}, err
}

// mailTables makes the consumer's tables, none of which has a key that would prevent anything, and an outbox for those who keep one by themselves.
func mailTables(ctx context.Context, c *conductor) error {
	c.disarm = append(c.disarm, func(ctx context.Context) error {
		return c.res.exec(ctx, `DROP TABLE IF EXISTS [delivery]; DROP TABLE IF EXISTS [effect]; DROP TABLE IF EXISTS [state]; DROP TABLE IF EXISTS [letter];`)
	})
	return c.res.exec(ctx, `CREATE TABLE [delivery] (seq INTEGER NOT NULL, round INTEGER NOT NULL, message TEXT NOT NULL, id TEXT NOT NULL, chain TEXT NOT NULL, attempt INTEGER NOT NULL,
			relay TEXT NOT NULL, accepted BOOLEAN NOT NULL, at_ns BIGINT NOT NULL);
		CREATE TABLE [effect] (round INTEGER NOT NULL, message TEXT NOT NULL);
		CREATE TABLE [state] (round INTEGER NOT NULL, chain TEXT NOT NULL, content INTEGER NOT NULL, PRIMARY KEY (round, chain));
		CREATE TABLE [letter] (round INTEGER NOT NULL, n INTEGER NOT NULL, id TEXT NOT NULL, message TEXT NOT NULL, chain TEXT NOT NULL, content INTEGER NOT NULL,
			attempt INTEGER NOT NULL, relay TEXT NOT NULL, until_ns BIGINT NOT NULL, delivered BOOLEAN NOT NULL);`)
}

// judgeMail reads the consumer's tables and the store's messages, and judges.
func judgeMail(ctx context.Context, q question) (v model.Verdict, err error) {
	res, err := openResource(q.place, q.Run)
	if err != nil {
		return v, err
	}
	defer func() { _ = res.close() }() // it only read
	h, err := res.history(ctx)
	if err != nil {
		return v, fmt.Errorf("reading the tables: %w", err)
	}
	facts := model.MailFacts{Answers: h.Answers, Events: h.Events}
	if err := res.mail(ctx, &facts); err != nil {
		return v, fmt.Errorf("reading the consumer's tables: %w", err)
	}
	store, err := q.site().open(ctx)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, store.Shutdown(ctx)) }()
	box, err := mailboxOf(store)
	if err != nil {
		return v, err
	}
	for _, round := range q.Mail.Played {
		if err := mailIn(ctx, box, topicOf(q.Run, round.Round), round.Round, &facts); err != nil {
			return v, fmt.Errorf("reading the messages: %w", err)
		}
	}
	return model.JudgeMail(facts, *q.Mail), nil
}

// mail reads the consumer's tables, and the outbox of those who keep one by themselves.
func (r *resource) mail(ctx context.Context, f *model.MailFacts) error {
	tx, err := r.db.BeginTx(ctx, &r.snapshot)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it only read
	for _, part := range []struct {
		text string
		scan func(rows *sql.Rows) error
	}{
		{`SELECT seq, round, message, id, chain, attempt, relay, accepted, at_ns FROM [delivery] ORDER BY seq`, func(rows *sql.Rows) error {
			var d model.Delivery
			err := rows.Scan(&d.Seq, &d.Round, &d.Message, &d.ID, &d.Key, &d.Attempt, &d.Relay, &d.Accepted, &d.At)
			f.Deliveries = append(f.Deliveries, d)
			return err
		}},
		{`SELECT round, message FROM [effect]`, func(rows *sql.Rows) error {
			var e model.MailEffect
			err := rows.Scan(&e.Round, &e.Message)
			f.Effects = append(f.Effects, e)
			return err
		}},
		{`SELECT round, chain, content FROM [state]`, func(rows *sql.Rows) error {
			var s model.MailState
			err := rows.Scan(&s.Round, &s.Key, &s.Value)
			f.States = append(f.States, s)
			return err
		}},
		{`SELECT round, message, id, chain, content, attempt, relay, delivered FROM [letter] ORDER BY round, n`, func(rows *sql.Rows) error {
			m := model.MailMessage{State: outbox.Pending.String()}
			var delivered bool
			err := rows.Scan(&m.Round, &m.Name, &m.ID, &m.Key, &m.Value, &m.Attempts, &m.Relay, &delivered)
			if delivered {
				m.State = outbox.Delivered.String()
			}
			f.Messages = append(f.Messages, m)
			return err
		}},
	} {
		if err := r.each(ctx, tx, part.text, part.scan); err != nil {
			return err
		}
	}
	return nil
}

// mailIn adds what the store tells of a round.
func mailIn(ctx context.Context, box mailbox, topic string, round int, f *model.MailFacts) error {
	all, err := box.List(ctx, outbox.ListRequest{Topic: topic, Bodies: true, Limit: outbox.MaxList})
	if err != nil {
		return err
	}
	for i := range all {
		var l letter
		if err := json.Unmarshal(all[i].Payload, &l); err != nil {
			return err
		}
		m := model.MailMessage{Round: round, Name: l.Name, ID: all[i].ID.String(), Key: l.Key, Value: l.Value, State: all[i].State.String(), Attempts: all[i].Attempts, Relay: all[i].Relay}
		for _, e := range all[i].Errors {
			m.Errors = append(m.Errors, e.Text)
		}
		f.Messages = append(f.Messages, m)
	}
	return nil
}
