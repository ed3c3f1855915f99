package flakypay

import (
	"context"
	"fmt"
	"net/url"
	"time"
)

// Bounds. What exceeds one is refused without an effect.
const (
	MaxKeyBytes   = 255     // of a key
	MaxDetails    = 64      // requests, and answers, that the ledger keeps of one key; its figures count all
	MaxGates      = 1 << 10 // names of gates
	maxAttempt    = 64      // bytes of an attempt header
	webhookSlots  = 8       // webhooks that are being sent at one time
	webhookTries  = 4       // times that one is sent until it is acknowledged
	webhookBound  = 5 * time.Second
	webhookRetry  = 20 * time.Millisecond // from one try to the next, by the provider's clock
	headerBound   = 10 * time.Second
	maxRetryAfter = 24 * time.Hour
)

// Config is how a provider behaves. The zero value keeps its keys for ever, closes none, has no faults and no file.
type Config struct {
	// Clock is the provider's own; nil: the real one.
	Clock Clock
	// Closes: an inquiry can close a key. Such a provider never forgets one.
	Closes bool
	// Forget is when the provider forgets a key; the zero value: never.
	Forget Forget
	// IgnoresNotAfter: the provider does not enforce a not-after.
	IgnoresNotAfter bool
	// Script chooses the fault of a request; nil, or the zero fault: the chances decide. It is called concurrently.
	Script func(Call) Fault
	// Chances are the probabilities of faults that neither a header nor the script chose. Their sum is at most 1.
	Chances []Chance
	// Seed decides, with the key, what is asked and how often it was, which chance a request draws.
	Seed uint64
	// HeaderFaults: a request may choose its own fault by the header Flaky-Fault. See [ParseFault].
	HeaderFaults bool
	// WebhookURL is where late and repeated answers are posted as a [Notice]; empty: Webhook is called.
	WebhookURL string
	// Webhook is called with late and repeated answers, by at most 8 goroutines; nil acknowledges one. Its context ends after 5 s.
	Webhook func(context.Context, Notice) error
	// MaxWebhooks is how many may be waiting; one more is dropped, and recorded so. 0: 10,000.
	MaxWebhooks int
	// File is where the ledger is appended to; empty: it is kept in memory alone.
	File string
	// Sync: the file is synchronised before anybody is told of a fact. It costs one flush of the disk each, one after another.
	Sync bool
	// MaxKeys is how many keys there may be; a new one beyond is answered 507, without an effect. 0: 1,048,576.
	MaxKeys int
	// MaxBody is the size of a request's body in bytes; a larger one is answered 413. 0: 16 MiB. The ledger keeps no body.
	MaxBody int64
	// MaxConnections is how many may be open; one more is reset. 0: 16,384.
	MaxConnections int
}

// Forget is when a key is forgotten: its stored answer and its body's fingerprint; an inquiry does not find it either. The ledger forgets nothing.
type Forget struct {
	// AtOnce: keys are never looked at. The same key again is another effect, also at the same time.
	AtOnce bool
	// AfterRequests is how many requests of any key the provider receives until a stored answer is forgotten; 0: no such number.
	AfterRequests int64
	// After is how long a stored answer is kept, by the provider's clock; 0: no such time.
	After time.Duration
	// ByFault: the fault [Fault.Forget] may be chosen.
	ByFault bool
}

func (f Forget) ever() bool { return f != Forget{} }

// Call is what a script knows of a request.
type Call struct {
	Op      Op
	Verb    Verb
	Key     string
	Attempt string // its header Payment-Attempt
	Nth     int    // which request of its key, operation and verb it is, from 1
}

// Chance is a fault and its probability.
type Chance struct {
	Fault Fault
	P     float64
}

func (c *Config) complete() error {
	defaults := func(n *int, standard int) {
		if *n == 0 {
			*n = standard
		}
	}
	defaults(&c.MaxWebhooks, 10_000)
	defaults(&c.MaxKeys, 1<<20)
	defaults(&c.MaxConnections, 1<<14)
	if c.MaxBody == 0 {
		c.MaxBody = 16 << 20
	}
	if c.Clock == nil {
		c.Clock = realClock{time.Now()}
	}
	switch {
	case c.MaxWebhooks < 0 || c.MaxKeys < 0 || c.MaxConnections < 0 || c.MaxBody < 0:
		return &ConfigError{"Max...", "a bound is negative"}
	case c.Forget.AfterRequests < 0 || c.Forget.After < 0:
		return &ConfigError{"Forget", "negative"}
	case c.Closes && c.Forget.ever():
		return &ConfigError{"Closes", "who forgets a key cannot have closed it"}
	case c.Sync && c.File == "":
		return &ConfigError{"Sync", "there is no file"}
	case c.WebhookURL != "" && c.Webhook != nil:
		return &ConfigError{"WebhookURL", "there is a function as well"}
	}
	if u, err := url.Parse(c.WebhookURL); c.WebhookURL != "" && (err != nil || u.Host == "") {
		return &ConfigError{"WebhookURL", fmt.Sprintf("%q is no URL of a server", c.WebhookURL)}
	}
	return c.checkChances()
}

func (c *Config) checkChances() error {
	sum := 0.0
	for _, chance := range c.Chances {
		if !(chance.P >= 0 && chance.P <= 1) {
			return &ConfigError{"Chances", fmt.Sprintf("a probability of %v", chance.P)}
		}
		sum += chance.P
		if problem := c.checkFault(chance.Fault); problem != "" {
			return &ConfigError{"Chances", problem}
		}
	}
	if sum > 1+1e-9 {
		return &ConfigError{"Chances", fmt.Sprintf("their sum is %v", sum)}
	}
	return nil
}

// checkFault says what this provider cannot do of a fault, or nothing.
func (c *Config) checkFault(f Fault) string {
	switch {
	case f.Webhooks < 0 || f.Webhooks > 8:
		return "webhooks of one answer: 0 to 8"
	case f.Webhooks > 0 && c.WebhookURL == "" && c.Webhook == nil:
		return "a webhook is asked for, and there is none"
	case f.Forget && !c.Forget.ByFault:
		return "a key is to be forgotten by a provider that does not (Forget.ByFault)"
	case f.Before < 0 || f.After < 0 || f.WebhookAfter < 0:
		return "a delay is negative"
	case f.Refuse.RetryAfter < 0 || f.Refuse.RetryAfter > maxRetryAfter:
		return "Retry-After: 0 to 24 h"
	case f.Refuse.Status != 0 && f.Refuse.Status != 402 && f.Refuse.Status != 429 && f.Refuse.Status != 503:
		return "a refusal is 402, 429 or 503"
	case f.Ending < AnswerWhole || f.Ending > NeverAnswered:
		return "an ending that is none"
	case f.Unserved < Served || f.Unserved > Silent:
		return "an absence that is none"
	}
	return ""
}
