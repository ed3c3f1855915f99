package flakypay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Notice is a late or repeated answer, as a webhook is given it.
type Notice struct {
	Op      Op     `json:"op"`
	Key     string `json:"key"`
	Attempt string `json:"attempt,omitempty"` // of the request that it answers
	Answer  int64  `json:"answer"`            // its number; a try that is repeated has the same
	Status  int    `json:"status"`
	Reply   Reply  `json:"reply"`
}

// notify delivers an answer as often as its fault says, apart from whoever asked.
func (p *Provider) notify(q *ask, o *outcome) {
	if q.Verb != Make || o.means != MeansEffect && o.status != http.StatusPaymentRequired {
		return
	}
	for i := range q.fault.Webhooks {
		select {
		case p.waiting <- struct{}{}:
		default: // full
			_, _ = p.answered(q, o, Webhook, NotWritten) // what cannot be recorded stops the provider by itself
			continue
		}
		if !p.enter() {
			<-p.waiting
			_, _ = p.answered(q, o, Webhook, NotWritten)
			continue
		}
		go func() {
			defer p.leave()
			defer func() { <-p.waiting }()
			if p.pause(q.fault.WebhookAfter * time.Duration(i+1)) {
				p.call(q, o)
			} else {
				_, _ = p.answered(q, o, Webhook, NotWritten)
			}
		}()
	}
}

// call makes one webhook, and tries again until it is acknowledged.
func (p *Provider) call(q *ask, o *outcome) {
	select {
	case p.calling <- struct{}{}:
		defer func() { <-p.calling }()
	case <-p.ctx.Done():
		_, _ = p.answered(q, o, Webhook, NotWritten)
		return
	}
	answer, err := p.answered(q, o, Webhook, Sending)
	if err != nil {
		return
	}
	n := Notice{Op: q.Op, Key: q.Key, Attempt: q.Attempt, Answer: answer.Number, Status: o.status, Reply: o.reply}
	became := NotWritten
	for try := range webhookTries {
		if try > 0 && !p.pause(webhookRetry) {
			break
		}
		d := p.post(n)
		became = max(became, d)
		if became == Acknowledged {
			break
		}
	}
	p.sent(q, answer, became)
}

// post is one try.
func (p *Provider) post(n Notice) Delivery {
	ctx, cancel := context.WithTimeout(p.ctx, webhookBound)
	defer cancel()
	if p.c.WebhookURL == "" {
		if p.c.Webhook != nil && p.c.Webhook(ctx, n) != nil {
			return Unsure
		}
		return Acknowledged
	}
	switch err := p.postHTTP(ctx, n); {
	case err == nil:
		return Acknowledged
	case dialFailed(err):
		return NotWritten
	default:
		return Unsure
	}
}

func (p *Provider) postHTTP(ctx context.Context, n Notice) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.c.WebhookURL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the status is all that counts
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("%w: %s", errWebhook, resp.Status)
	}
	return nil
}

// dialFailed reports whether nothing was sent, because there was no connection.
func dialFailed(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
