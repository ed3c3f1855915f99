package flakypay

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// The headers. See the package comment.
const (
	HeaderKey      = "Idempotency-Key"
	HeaderAttempt  = "Payment-Attempt" // not the number that budgets count by
	HeaderNotAfter = "Not-After-Ms"
	HeaderNow      = "Now-Ms"
	HeaderAnswer   = "Flaky-Answer"
	HeaderFault    = "Flaky-Fault"
	HeaderReplay   = "Idempotent-Replay"
)

func (p *Provider) routes() http.Handler {
	mux := http.NewServeMux()
	for path, op := range map[string]Op{"/charges": Charge, "/refunds": Refund} {
		mux.HandleFunc("POST "+path, p.handle(op, Make))
		mux.HandleFunc("GET "+path, p.handle(op, Find))
		if p.c.Closes {
			mux.HandleFunc("POST "+path+"/close", p.handle(op, Close))
		}
	}
	mux.HandleFunc("GET /time", func(w http.ResponseWriter, _ *http.Request) {
		p.ledger.mu.Lock()
		p.ledger.now = max(p.ledger.now, p.c.Clock.Now())
		now := p.ledger.now
		p.ledger.mu.Unlock()
		w.Header().Set(HeaderNow, strconv.FormatInt(now.Milliseconds(), 10))
	})
	mux.HandleFunc("POST /open", func(_ http.ResponseWriter, r *http.Request) { p.Open(r.URL.Query().Get("gate")) })
	mux.HandleFunc("POST /received", func(w http.ResponseWriter, r *http.Request) {
		values := r.URL.Query()
		n, err := strconv.ParseInt(values.Get("answer"), 10, 64)
		if err == nil {
			err = p.ledger.Acknowledge(Op(values.Get("op")), values.Get("key"), n)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
	})
	return mux
}

// handle answers one request, or lets it go unanswered.
func (p *Provider) handle(op Op, verb Verb) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !p.enter() {
			cut(w, nil, Reset)
			return
		}
		defer p.leave()
		q := &ask{Call: Call{Op: op, Verb: verb}}
		p.mu.Lock()
		q.absence, q.present = p.absence, p.changed // before the ledger shows the request: who comes back then does not answer it
		p.mu.Unlock()
		o := p.read(w, r, q)
		if o != nil { // it is not understood, and not in the ledger
			http.Error(w, o.reply.Reason, o.status)
			return
		}
		o, err := p.receive(q, r.Header.Get(HeaderFault))
		if err == nil && o == nil {
			o = p.perform(r, q)
		}
		if o == nil {
			cut(w, nil, Reset)
			return
		}
		p.answer(w, r, q, o)
	}
}

// read understands a request, or says why it cannot.
func (p *Provider) read(w http.ResponseWriter, r *http.Request, q *ask) *outcome {
	q.Key, q.Attempt = r.URL.Query().Get("key"), r.Header.Get(HeaderAttempt)
	if q.Verb == Make {
		q.Key = r.Header.Get(HeaderKey)
	}
	if q.Key == "" || len(q.Key) > MaxKeyBytes || len(q.Attempt) > maxAttempt {
		return problem(http.StatusBadRequest, fmt.Sprintf("a key has 1 to %d bytes, an attempt at most %d", MaxKeyBytes, maxAttempt))
	}
	if text := r.Header.Get(HeaderNotAfter); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > int64(1<<62/time.Millisecond) {
			return problem(http.StatusBadRequest, HeaderNotAfter+" is an instant of this provider's clock, in milliseconds")
		}
		q.notAfter, q.bounded = n, true
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, p.c.MaxBody))
	if err != nil {
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			return problem(http.StatusRequestEntityTooLarge, fmt.Sprintf("a body has at most %d bytes", p.c.MaxBody))
		}
		return problem(http.StatusBadRequest, "the body did not arrive whole")
	}
	if q.Verb != Make {
		return nil
	}
	var in struct {
		Amount int64  `json:"amount"`
		Charge string `json:"charge"`
	}
	err = json.Unmarshal(body, &in)
	if err != nil || q.Op == Charge && in.Amount <= 0 || q.Op == Refund && in.Charge == "" {
		return problem(http.StatusBadRequest, "want JSON with a positive amount, or the charge that is to be refunded")
	}
	q.print, q.amount, q.charge = sha256.Sum256(body), in.Amount, in.Charge
	return nil
}

// receive enters a request into the ledger, and chooses its fault.
func (p *Provider) receive(q *ask, header string) (*outcome, error) {
	l := p.ledger
	l.mu.Lock()
	if len(l.accounts) >= p.c.MaxKeys && l.accounts[accountKey{q.Op, q.Key}] == nil {
		l.mu.Unlock()
		q.number = 0
		return problem(http.StatusInsufficientStorage, "there are too many keys"), nil
	}
	p.stepLocked(q)
	l.requests++
	q.number = l.requests
	q.acc.nth[verbIndex(q.Verb)]++
	q.Nth = q.acc.nth[verbIndex(q.Verb)]
	l.mu.Unlock()
	f, wrong := p.choose(q.Call, header) // the script may look at the ledger
	if wrong == "" {
		q.fault = f
	}
	err := p.locked(func() error {
		p.stepLocked(q)
		return l.recordLocked(&fact{Fact: factRequest, Number: q.number, Op: q.Op, Key: q.Key, Verb: q.Verb, Nth: q.Nth, Attempt: q.Attempt, Fault: q.fault.Name})
	})
	if wrong != "" {
		return problem(http.StatusBadRequest, wrong), err
	}
	return nil, err
}

// locked is a step of the ledger that may fail: the provider ends then, because it must not do what it cannot record.
func (p *Provider) locked(step func() error) error {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	err := step()
	if err != nil {
		p.cancel()
	}
	return err
}

// perform does what is asked for. nil: there is no answer.
func (p *Provider) perform(r *http.Request, q *ask) (o *outcome) {
	if p.absent(r, q) {
		return nil
	}
	if s := q.fault.Refuse.Status; s == http.StatusTooManyRequests || s == http.StatusServiceUnavailable {
		o := problem(s, q.fault.Refuse.Reason)
		o.retryAfter = q.fault.Refuse.RetryAfter
		return o
	}
	step := func(rule func(*Provider, *ask) *outcome) {
		_ = p.locked(func() error { // nil is the answer then
			o = rule(p, q)
			return p.ledger.broken
		})
	}
	if q.Verb == Make {
		if step(p.rules.arrive); o != nil {
			return o
		}
	}
	if !p.wait(q.fault.Before, q.fault.HoldBefore) {
		_ = p.locked(func() error { leaveLocked(q); return nil }) // cannot fail
		return nil
	}
	switch q.Verb {
	case Make:
		step(p.rules.commit)
	case Find:
		step(p.rules.find)
	case Close:
		step(p.rules.close)
	}
	return o
}

// absent reports whether the provider is, or was, down for a request, after keeping it as long as that lasts.
func (p *Provider) absent(r *http.Request, q *ask) bool {
	if q.absence == Served && q.fault.Unserved == Served {
		return false
	}
	if q.absence == Refusing || q.fault.Unserved == Refusing {
		return true
	}
	if q.absence == Served {
		q.present = nil // for this request alone: it lasts
	}
	select {
	case <-q.present:
	case <-r.Context().Done(): // the client has gone; nothing is left to be kept from it
	case <-p.ctx.Done():
	}
	return true
}
