package outbox

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tenure-go/tenure/fence"
)

// CheckAppend returns an [*InvalidError] for messages that no store accepts.
func CheckAppend(messages []Message) error {
	if len(messages) < 1 || len(messages) > MaxAppend {
		return &InvalidError{"messages", fmt.Sprintf("%d; want 1 to %d", len(messages), MaxAppend)}
	}
	seen := make(map[fence.ID]bool, len(messages))
	bytes := 0
	for i := range messages {
		m := &messages[i]
		if err := m.Check(); err != nil {
			return err
		}
		if !m.ID.IsZero() && seen[m.ID] {
			return &InvalidError{"messages", fmt.Sprintf("%v twice", m.ID)}
		}
		seen[m.ID] = true
		if bytes += len(m.Payload); bytes > MaxAppendBytes {
			return &InvalidError{"messages", fmt.Sprintf("more than %d bytes of payloads", MaxAppendBytes)}
		}
	}
	return nil
}

// Check returns an [*InvalidError] for a message that no store accepts.
func (m *Message) Check() error {
	if err := checkText("topic", m.Topic, MaxTopic); err != nil {
		return err
	}
	if err := checkOptional("key", m.Key, MaxKey); err != nil {
		return err
	}
	if m.Ordered && m.Key == "" {
		return &InvalidError{"key", "none, and the message is ordered"}
	}
	if len(m.Payload) > MaxPayload {
		return &InvalidError{"payload", fmt.Sprintf("%d bytes; at most %d", len(m.Payload), MaxPayload)}
	}
	if len(m.Headers) > MaxHeaders {
		return &InvalidError{"headers", fmt.Sprintf("%d; at most %d", len(m.Headers), MaxHeaders)}
	}
	total := 0
	for name, value := range m.Headers {
		if err := checkText("header name", name, MaxHeaderName); err != nil {
			return err
		}
		if !utf8.ValidString(value) || strings.Contains(value, "\x00") {
			return &InvalidError{"header", fmt.Sprintf("the value of %q is not UTF-8 without NUL", name)}
		}
		total += len(name) + len(value)
	}
	if total > MaxHeaderBytes {
		return &InvalidError{"headers", fmt.Sprintf("%d bytes; at most %d", total, MaxHeaderBytes)}
	}
	return nil
}

// Check returns an [*InvalidError] for a request that no store accepts.
func (r *ClaimRequest) Check() error {
	if r.Claim.IsZero() {
		return &InvalidError{"claim", "none"}
	}
	if err := checkOptional("relay", r.Relay, MaxRelay); err != nil {
		return err
	}
	if len(r.Topics) > MaxTopics {
		return &InvalidError{"topics", fmt.Sprintf("%d; at most %d", len(r.Topics), MaxTopics)}
	}
	for _, topic := range r.Topics {
		if err := checkText("topic", topic, MaxTopic); err != nil {
			return err
		}
	}
	if r.TTL < MinTTL || r.TTL > MaxTTL {
		return &InvalidError{"ttl", fmt.Sprintf("%v; want %v to %v", r.TTL, MinTTL, MaxTTL)}
	}
	if r.Bytes < 1 || r.Bytes > MaxBatchBytes {
		return &InvalidError{"bytes", fmt.Sprintf("%d; want 1 to %d", r.Bytes, MaxBatchBytes)}
	}
	if r.MaxAttempts < 1 || r.MaxAttempts > MaxAttempts {
		return &InvalidError{"attempts", fmt.Sprintf("%d; want 1 to %d", r.MaxAttempts, MaxAttempts)}
	}
	return checkLimit(r.Limit, MaxBatch)
}

// Check returns an [*InvalidError] for a request that no store accepts.
func (r *SettleRequest) Check() error {
	if r.Claim.IsZero() {
		return &InvalidError{"claim", "none"}
	}
	if err := checkOptional("relay", r.Relay, MaxRelay); err != nil {
		return err
	}
	if len(r.Verdicts) < 1 || len(r.Verdicts) > MaxBatch {
		return &InvalidError{"verdicts", fmt.Sprintf("%d; want 1 to %d", len(r.Verdicts), MaxBatch)}
	}
	seen := make(map[int64]bool, len(r.Verdicts))
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		if seen[v.Position] {
			return &InvalidError{"verdicts", fmt.Sprintf("position %d twice", v.Position)}
		}
		seen[v.Position] = true
		if err := v.check(); err != nil {
			return err
		}
	}
	return nil
}

func (v *Verdict) check() error {
	switch {
	case v.Outcome < Published || v.Outcome > Returned:
		return &InvalidError{"outcome", v.Outcome.String()}
	case v.RetryIn < 0 || v.RetryIn > MaxRetryIn:
		return &InvalidError{"retry in", fmt.Sprintf("%v; want 0 to %v", v.RetryIn, MaxRetryIn)}
	case v.Dead && v.Outcome != Failed:
		return &InvalidError{"verdicts", fmt.Sprintf("position %d is given up and %v", v.Position, v.Outcome)}
	}
	return nil
}

// Text is an error's text as it is kept: valid UTF-8 without NUL, of at most MaxError bytes.
func Text(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\x00", "�")
	if len(text) <= MaxError {
		return text
	}
	n := MaxError - len("…")
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// Check returns an [*InvalidError] for a request that no store accepts.
func (r *ListRequest) Check() error {
	if err := checkWhich(r.Topic, r.Key); err != nil {
		return err
	}
	if i := slices.IndexFunc(r.States, func(s State) bool { return s < Pending || s > Dead }); i >= 0 {
		return &InvalidError{"state", r.States[i].String()}
	}
	if r.After < 0 {
		return &InvalidError{"after", "negative"}
	}
	return checkLimit(r.Limit, MaxList)
}

// Check returns an [*InvalidError] for a request that no store accepts.
func (r *PauseRequest) Check() error {
	if err := checkOptional("topic", r.Topic, MaxTopic); err != nil {
		return err
	}
	return checkOptional("reason", r.Reason, MaxReason)
}

// Check returns an [*InvalidError] for a request that no store accepts.
func (r *MoveRequest) Check() error {
	if err := checkWhich(r.Topic, r.Key); err != nil {
		return err
	}
	if len(r.IDs) > MaxList {
		return &InvalidError{"ids", fmt.Sprintf("%d; at most %d", len(r.IDs), MaxList)}
	}
	if r.From < 0 || r.To < 0 || r.To > 0 && r.To < r.From {
		return &InvalidError{"range", fmt.Sprintf("%d to %d", r.From, r.To)}
	}
	if r.Within < 0 {
		return &InvalidError{"within", "negative"}
	}
	return checkLimit(r.Limit, MaxMove)
}

// Check returns an [*InvalidError] for what no store forgets.
func (r *PruneRequest) Check() error {
	if r.Delivered < MinPruneAge {
		return &InvalidError{"age", fmt.Sprintf("%v for what was delivered; want at least %v", r.Delivered, MinPruneAge)}
	}
	if r.Dead != 0 && r.Dead < MinPruneAge {
		return &InvalidError{"age", fmt.Sprintf("%v for dead letters; want at least %v, or none", r.Dead, MinPruneAge)}
	}
	return checkLimit(r.Limit, MaxMove)
}

// CheckAfter returns an [*InvalidError] for a page of topics that no store tells.
func CheckAfter(topic string) error { return checkOptional("topic", topic, MaxTopic) }

// CheckAwait returns an [*InvalidError] for a wait that no store does.
func CheckAwait(atMost time.Duration) error {
	if atMost < 0 || atMost > MaxTTL {
		return &InvalidError{"wait", fmt.Sprintf("%v; want 0 to %v", atMost, MaxTTL)}
	}
	return nil
}

func checkWhich(topic, key string) error {
	if err := checkOptional("topic", topic, MaxTopic); err != nil {
		return err
	}
	return checkOptional("key", key, MaxKey)
}

func checkLimit(limit, most int) error {
	if limit < 1 || limit > most {
		return &InvalidError{"limit", fmt.Sprintf("%d; want 1 to %d", limit, most)}
	}
	return nil
}

func checkOptional(field, text string, most int) error {
	if text == "" {
		return nil
	}
	return checkText(field, text, most)
}

func checkText(field, text string, most int) error {
	switch {
	case text == "":
		return &InvalidError{field, "empty"}
	case len(text) > most:
		return &InvalidError{field, fmt.Sprintf("%d bytes; at most %d", len(text), most)}
	case !utf8.ValidString(text):
		return &InvalidError{field, "not UTF-8"}
	case strings.ContainsFunc(text, unicode.IsControl):
		return &InvalidError{field, fmt.Sprintf("%q has a control character", text)}
	}
	return nil
}
