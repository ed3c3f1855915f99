package flakypay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// answer gives the connection, and the webhook, what the fault leaves of an answer.
func (p *Provider) answer(w http.ResponseWriter, r *http.Request, q *ask, o *outcome) {
	ending := q.fault.Ending
	if !p.wait(q.fault.After, q.fault.HoldAfter) {
		ending = Reset
	}
	known := NotWritten
	if ending == AnswerWhole {
		known = Sending
	}
	n, err := p.answered(q, o, Connection, known)
	if err != nil {
		cut(w, nil, Reset)
		return
	}
	body, err := json.Marshal(o.reply)
	if err != nil {
		cut(w, nil, Reset)
		return
	}
	p.head(w.Header(), q, o, n, len(body))
	if ending == AnswerWhole {
		became := p.rules.write(w, r, o.status, body)
		p.sent(q, n, became)
		if became == NotWritten {
			cut(w, nil, Reset) // net/http would send an answer of its own
		}
		p.notify(q, o)
		return
	}
	p.notify(q, o)
	if ending == NeverAnswered {
		select {
		case <-r.Context().Done():
		case <-p.ctx.Done():
		}
		ending = Reset
	}
	cut(w, half(w.Header(), o.status, body), ending)
}

func (p *Provider) head(h http.Header, q *ask, o *outcome, n Answer, length int) {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(length))
	h.Set(HeaderNow, strconv.FormatInt(q.completed.Milliseconds(), 10))
	h.Set(HeaderAnswer, strconv.FormatInt(n.Number, 10))
	if o.replayed {
		h.Set(HeaderReplay, "true")
	}
	if o.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((o.retryAfter+time.Second-1)/time.Second), 10))
	}
}

// write gives the whole answer to the connection, and says what is known of its last byte.
func write(w http.ResponseWriter, r *http.Request, status int, body []byte) Delivery {
	if r.Context().Err() != nil { // a write to a connection whose other end has closed it succeeds once
		return NotWritten
	}
	w.WriteHeader(status)
	_, err := w.Write(body)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	switch {
	case err != nil:
		return NotWritten
	case r.Context().Err() != nil:
		return Unsure
	}
	return Written
}

// half is an answer up to half of its body.
func half(h http.Header, status int, body []byte) []byte {
	text := fmt.Sprintf("HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for name, values := range h {
		for _, v := range values {
			text += name + ": " + v + "\r\n"
		}
	}
	return append([]byte(text+"\r\n"), body[:len(body)/2]...)
}

// cut takes the connection from the server, and ends it.
func cut(w http.ResponseWriter, part []byte, how Ending) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // it has been cut before
	}
	if how == Half {
		_, _ = conn.Write(part) // whatever arrives of it is not the whole
	}
	if how == Reset {
		reset(conn)
		return
	}
	_ = conn.Close() // nothing was promised to it
}

// answered records an answer.
func (p *Provider) answered(q *ask, o *outcome, way Way, d Delivery) (n Answer, err error) {
	err = p.locked(func() error {
		l := p.ledger
		l.now = max(l.now, p.c.Clock.Now())
		if q.number == 0 { // of a key that there was no room for: the ledger has neither
			return nil
		}
		n = Answer{Number: l.answers + 1, Request: q.number, Status: o.status, Means: o.means, Way: way, Delivery: d, At: l.now}
		return l.recordLocked(&fact{Fact: factAnswer, Op: q.Op, Key: q.Key, Number: n.Number, Request: n.Request, Status: n.Status, Means: n.Means, Way: way, Delivery: d})
	})
	return n, err
}

// sent records what became of an answer.
func (p *Provider) sent(q *ask, n Answer, d Delivery) {
	if q.number == 0 {
		return
	}
	_ = p.locked(func() error { return p.ledger.sentLocked(q.acc, n, d) }) // it is Sending in the file then, which is true
}
