package drill

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/relay"
)

// roleCarrier is a process that runs the library's relay, which hands messages to the consumer of the drill.
const roleCarrier role = "carrier"

// Where a carrier stops itself, once.
const (
	pointClaimed   point = "claimed"   // its claim is answered, and it has not looked at the deadline
	pointHanding   point = "handing"   // it has looked at the deadline, and nothing was sent
	pointPublished point = "published" // the consumer has acknowledged, and nothing of that is recorded
)

// What a carrier does that the library's relay would not.
const (
	mannerSettlesFirst manner = "settles-first" // it says that a message was published, and then publishes it
	mannerOwnTable     manner = "own-table"     // its outbox is a table of its own: it takes the first, and marks it as delivered by its id
	mannerNewIDs       manner = "new-ids"       // each publication has an id of its own
	mannerMute         manner = "mute"          // it says nothing late
	mannerDeaf         manner = "deaf"          // it takes what is late for recorded
	mannerGivesUp      manner = "gives-up"      // it gives up at once
	mannerLeaps        manner = "leaps"         // behind a message that failed it goes on with the next of the key
)

// carrierSetup says what a carrier does.
type carrierSetup struct {
	Topic    string `json:"topic"`
	TTL      int64  `json:"ttl_ms"`
	Batch    int    `json:"batch"`
	Attempts int    `json:"attempts"`
	Once     bool   `json:"once,omitempty"` // it ends when it has said once what became of a batch
	Stop     point  `json:"stop,omitempty"`
	Manner   manner `json:"manner,omitempty"`
}

const carrierPoll = 20 * time.Millisecond // between two looks of a carrier

// carrier is a worker that relays messages.
type carrier struct {
	*worker
	box    mailbox
	client *http.Client

	// Of whoever runs the relay, one at a time.
	held    map[int64]letter // of the latest claim, by position
	till    time.Duration    // until when it lasts at least
	stopped bool             // it was, and has gone on
	settled context.CancelFunc
}

// serveCarrier carries out what the conductor orders: to relay.
func (w *worker) serveCarrier(ctx context.Context, in *bufio.Scanner) error {
	s := &carrier{worker: w, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: consumerBound}}
	defer w.close(ctx)
	if err := s.open(ctx); err != nil {
		return err
	}
	for {
		var c command
		if err := receive(in, &c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		answer := reply{ID: c.ID}
		if c.Op == opDo {
			if err := s.carry(ctx); err != nil {
				answer.Err, answer.Code = err.Error(), lease.CodeOf(err)
			}
		}
		if err := w.out.send(answer); err != nil {
			return err
		}
	}
}

// open opens store and tables.
func (s *carrier) open(ctx context.Context) (err error) {
	w := s.worker
	if w.now, _, err = clock.Kernel(); err != nil {
		return err
	}
	w.net = &faultyStore{now: w.now, faults: map[string]fault{}, times: map[string]int{}, told: func(heldTill) error { return nil }}
	w.site = w.place.site()
	if w.res, err = openResource(w.place, w.Run); err != nil {
		return err
	}
	return s.openMail(ctx)
}

func (s *carrier) openMail(ctx context.Context) (err error) {
	if err = s.openStore(ctx); err == nil {
		s.box, err = mailboxOf(s.store)
	}
	return err
}

// carry relays until once was enough, or for ever.
func (s *carrier) carry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundBound)
	defer cancel()
	if s.Mail.Manner == mannerSettlesFirst {
		return s.settleFirst(ctx)
	}
	if s.Mail.Manner == mannerOwnTable {
		return s.ownTable(ctx)
	}
	s.settled = func() {}
	if s.Mail.Once {
		s.settled = cancel
	}
	o := relay.Options{Name: s.Name, Topics: []string{s.Mail.Topic}, Batch: s.Mail.Batch, TTL: ofMillis(s.Mail.TTL), MaxAttempts: s.Mail.Attempts,
		RetryFirst: carrierPoll, RetryMost: carrierPoll, RestMost: carrierPoll, Poll: carrierPoll, Log: slog.New(slog.DiscardHandler)}
	if s.Mail.Manner == mannerGivesUp {
		o.MaxAttempts = 1
	}
	var r *relay.Relay
	var failed error
	o.OnEvent = func(e relay.Event) {
		if e.Kind == relay.Late {
			failed = errors.Join(failed, s.tell(ctx, e.Message.Position, false, fmt.Sprintf("late, the relay has counted %d", r.Stats().Late)))
		}
	}
	r, err := relay.New(&carriedBox{s}, s, o)
	if err != nil {
		return err
	}
	return errors.Join(r.Run(ctx), failed)
}

// tell records what became of a settlement.
func (s *carrier) tell(ctx context.Context, position int64, taken bool, why string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), consumerBound)
	defer cancel()
	l := s.held[position]
	return s.res.record(ctx, model.Answer{Round: s.Round, Writer: s.Name, Element: l.Name, Token: fence.Token(l.Attempt), Late: s.stopped, Accepted: taken, Why: why})
}

// halt stops this process at a point, once. On a file, the store is shut down for that time: see [worker.stopOutsideWrites].
func (s *carrier) halt(ctx context.Context, at point, attempt int) error {
	if s.Mail.Stop != at || s.stopped {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // it goes on without asking
	if err := s.res.saw(ctx, model.Event{Round: s.Round, Token: fence.Token(attempt), What: model.ClaimTill, At: s.till}); err != nil {
		return err
	}
	shut := s.site.traits().stopsOthers
	if shut {
		if err := s.store.Shutdown(ctx); err != nil {
			return err
		}
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	s.stopped = true
	if shut {
		return s.openMail(ctx)
	}
	return nil
}

// Publish is part of [outbox.Sink]: one after the other, and nothing of a key behind what has failed.
func (s *carrier) Publish(ctx context.Context, messages []outbox.Delivery) []error {
	results := make([]error, len(messages))
	failed := map[string]bool{}
	for i, m := range messages {
		if failed[m.Key] && s.Mail.Manner != mannerLeaps {
			results[i] = outbox.Outage(errors.New("an earlier one of this key has failed"))
			continue
		}
		results[i] = s.publish(ctx, s.held[m.Position])
		failed[m.Key] = failed[m.Key] || results[i] != nil
	}
	return results
}

// publish sends one letter, and stops before or after that where it is to.
func (s *carrier) publish(ctx context.Context, l letter) error {
	if err := s.halt(ctx, pointHanding, l.Attempt); err != nil {
		return err
	}
	err := s.post(ctx, l)
	if err == nil {
		err = s.halt(ctx, pointPublished, l.Attempt)
	}
	return err
}

// post hands a letter to the consumer. Who was stopped sends whatever its context has come to.
func (s *carrier) post(ctx context.Context, l letter) error {
	if s.stopped {
		if s.Mail.Manner == mannerMute {
			return nil
		}
		ctx = context.WithoutCancel(ctx)
	}
	if s.Mail.Manner == mannerNewIDs {
		l.ID = lease.NewID()
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Service+"/"+strconv.Itoa(s.Round), bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.GetBody = nil // nothing is sent twice by itself
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(resp.Body, outbox.MaxError))
	_ = resp.Body.Close() // it was read to its end, or is of no use
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusOK:
		return nil
	}
	err = fmt.Errorf("the consumer answers %s: %s", resp.Status, bytes.TrimSpace(said))
	if resp.StatusCode == statusRefused {
		return outbox.Refused(err)
	}
	return err
}

// settleFirst says of the first message that it was published, stops, and publishes it.
func (s *carrier) settleFirst(ctx context.Context) error {
	box := &carriedBox{s}
	b, err := box.Claim(ctx, outbox.ClaimRequest{Claim: lease.NewID(), Relay: s.Name, Topics: []string{s.Mail.Topic}, Limit: 1, Bytes: outbox.MaxBatchBytes, TTL: ofMillis(s.Mail.TTL), MaxAttempts: s.Mail.Attempts})
	if err != nil || len(b.Deliveries) == 0 {
		return errors.Join(err, fmt.Errorf("%w: %d messages to publish", ErrProcess, len(b.Deliveries)))
	}
	d := b.Deliveries[0]
	s.settled = func() {}
	if _, err := box.Settle(ctx, outbox.SettleRequest{Claim: b.Claim, Relay: s.Name, Verdicts: []outbox.Verdict{{Position: d.Position, Outcome: outbox.Published}}}); err != nil {
		return err
	}
	return s.publish(ctx, s.held[d.Position])
}

// ownTable relays from a table: always the first that is not delivered, which is marked by its id, whatever has become of it meanwhile.
func (s *carrier) ownTable(ctx context.Context) error {
	for {
		l, found, err := s.firstLetter(ctx)
		if err != nil {
			return err
		}
		if !found {
			if !sleep(ctx, carrierPoll) {
				return context.Cause(ctx)
			}
			continue
		}
		s.held = map[int64]letter{0: l}
		failed := s.publish(ctx, l)
		text, said := `UPDATE [letter] SET delivered = true WHERE id = ?1`, outbox.Published.String()
		if failed != nil {
			text, said = `UPDATE [letter] SET until_ns = 0 WHERE id = ?1`, outbox.Failed.String()
		}
		if err := errors.Join(s.res.exec(ctx, text, l.ID.String()), s.tell(ctx, 0, failed == nil, said)); err != nil || s.Mail.Once {
			return err
		}
	}
}

// firstLetter takes the first letter until a deadline, or finds that somebody has it.
func (s *carrier) firstLetter(ctx context.Context) (l letter, found bool, err error) {
	err = s.res.inTx(ctx, func(tx *sql.Tx) error {
		var id string
		var until int64
		found = false
		err := tx.QueryRowContext(ctx, s.res.sql(`SELECT id, message, chain, content, attempt, until_ns FROM [letter] WHERE round = ?1 AND NOT delivered ORDER BY n LIMIT 1`), s.Round).
			Scan(&id, &l.Name, &l.Key, &l.Value, &l.Attempt, &until)
		if errors.Is(err, sql.ErrNoRows) || err == nil && int64(s.now()) < until {
			return nil
		}
		if err != nil {
			return err
		}
		if l.ID, err = fence.ParseID(id); err != nil {
			return err
		}
		l.Attempt, l.Relay, found = l.Attempt+1, s.Name, true
		s.till = s.now() + ofMillis(s.Mail.TTL)
		_, err = tx.ExecContext(ctx, s.res.sql(`UPDATE [letter] SET attempt = ?2, relay = ?3, until_ns = ?4 WHERE id = ?1`), id, l.Attempt, s.Name, int64(s.till))
		return err
	})
	return l, found, err
}

// carriedBox is the way from the relay to the store.
type carriedBox struct{ s *carrier }

// Append is part of [outbox.Store].
func (b *carriedBox) Append(ctx context.Context, messages []outbox.Message) ([]fence.ID, error) {
	return b.s.box.Append(ctx, messages)
}

// Guarantees is part of [outbox.Store].
func (b *carriedBox) Guarantees() outbox.Guarantees { return b.s.box.Guarantees() }

// Claim is part of [outbox.Store]. It keeps what it was given, and stops where it is to, before anybody has looked at the deadline.
func (b *carriedBox) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Batch, error) {
	s := b.s
	sent := s.now()
	batch, err := s.box.Claim(ctx, req)
	if err != nil || len(batch.Deliveries) == 0 {
		return batch, err
	}
	s.held, s.till = map[int64]letter{}, sent+batch.Left
	for _, d := range batch.Deliveries {
		var l letter
		if err := json.Unmarshal(d.Payload, &l); err != nil {
			return batch, err
		}
		l.ID, l.Attempt, l.Relay = d.ID, d.Attempt, s.Name
		s.held[d.Position] = l
	}
	return batch, s.halt(ctx, pointClaimed, batch.Deliveries[0].Attempt)
}

// Settle is part of [outbox.Store]. It records what was recorded; what was late is told by the relay.
func (b *carriedBox) Settle(ctx context.Context, req outbox.SettleRequest) (outbox.Settled, error) {
	s := b.s
	if s.stopped && s.Mail.Manner == mannerMute {
		s.settled()
		return outbox.Settled{Applied: len(req.Verdicts)}, nil
	}
	done, err := s.box.Settle(ctx, req)
	if err != nil {
		return done, err
	}
	if s.Mail.Manner == mannerDeaf {
		done.Late = nil
	}
	late := map[int64]bool{}
	for _, position := range done.Late {
		late[position] = true
	}
	for _, v := range req.Verdicts {
		if !late[v.Position] {
			err = errors.Join(err, s.tell(ctx, v.Position, true, v.Outcome.String()))
		}
	}
	s.settled()
	return done, err
}
