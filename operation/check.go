package operation

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Check returns a [*InvalidError] for a request that no store accepts. Stores call it before they look anything up.
func (r *SubmitRequest) Check() error {
	if err := CheckID(r.ID); err != nil {
		return err
	}
	if err := checkText("kind", r.Kind, 1, MaxKind); err != nil {
		return err
	}
	switch {
	case len(r.Request) > MaxBody:
		return &InvalidError{"request", fmt.Sprintf("%d bytes; at most %d: keep what is larger elsewhere, and submit where it is", len(r.Request), MaxBody)}
	case r.Fingerprint == Fingerprint{}:
		return &InvalidError{"fingerprint", "none; see FingerprintOf"}
	case r.Priority < 0 || r.Priority > MaxPriority:
		return &InvalidError{"priority", fmt.Sprintf("%d; want 0 to %d", r.Priority, MaxPriority)}
	case r.Compensates == r.ID:
		return &InvalidError{"compensates", "an operation does not undo itself"}
	}
	if r.Compensates != "" {
		if err := CheckID(r.Compensates); err != nil {
			return err
		}
	}
	if err := checkText("order", r.Order, 0, MaxOrder); err != nil {
		return err
	}
	return checkDelay("run in", r.RunIn)
}

// CheckID returns a [*InvalidError] for an id that no store accepts.
func CheckID(id string) error { return checkText("id", id, 1, MaxID) }

// CheckReason returns a [*InvalidError] for a reason that no store accepts: one without a letter, where it is required, or one that is too long. See [Cut].
func CheckReason(reason string, required bool) error {
	switch {
	case required && strings.TrimSpace(reason) == "":
		return &InvalidError{"reason", "none"}
	case len(reason) > MaxReason:
		return &InvalidError{"reason", fmt.Sprintf("%d bytes; at most %d", len(reason), MaxReason)}
	case !utf8.ValidString(reason) || strings.ContainsRune(reason, 0):
		return &InvalidError{"reason", "not a text in UTF-8 without NUL"}
	}
	return nil
}

// Cut makes a reason of any text: valid UTF-8 without NUL, and no longer than MaxReason.
func Cut(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) <= MaxReason {
		return text
	}
	end := MaxReason - len("...")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}

// Check returns a [*InvalidError] for a request that no store accepts.
func (r *ClaimRequest) Check() error {
	if err := checkText("worker", r.Worker, 0, MaxWorker); err != nil {
		return err
	}
	if err := checkTTL(r.TTL); err != nil {
		return err
	}
	if err := checkText("id", r.ID, 0, MaxID); err != nil {
		return err
	}
	if err := checkCount("limit", r.Limit, MaxBatch); err != nil {
		return err
	}
	if err := checkCount("kinds", len(r.Kinds), MaxKinds); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range r.Kinds {
		k := &r.Kinds[i]
		if seen[k.Kind] {
			return &InvalidError{"kinds", fmt.Sprintf("%q twice", k.Kind)}
		}
		seen[k.Kind] = true
		if err := k.check(); err != nil {
			return err
		}
	}
	return nil
}

func (k *KindClaim) check() error {
	if err := checkText("kind", k.Kind, 1, MaxKind); err != nil {
		return err
	}
	if err := checkCount("limit of a kind", k.Limit, MaxBatch); err != nil {
		return err
	}
	switch {
	case k.Timeout < time.Millisecond || k.Timeout > MaxDelay:
		return &InvalidError{"timeout", fmt.Sprintf("%v; want 1ms to %v", k.Timeout, MaxDelay)}
	case k.Window < 0 || k.Window > MaxDelay && k.Window != Forever:
		return &InvalidError{"window", fmt.Sprintf("%v; want 0 to %v, or Forever", k.Window, MaxDelay)}
	}
	if err := checkDelay("not after", k.NotAfter); err != nil {
		return err
	}
	return checkCount("attempts", k.MaxAttempts, MaxAttempts)
}

// Check returns a [*InvalidError] for a request that no store accepts.
func (r *RenewRequest) Check() error {
	if len(r.Refs) > MaxBatch {
		return &InvalidError{"claims", fmt.Sprintf("%d; at most %d", len(r.Refs), MaxBatch)}
	}
	return checkTTL(r.TTL)
}

// Check returns a [*InvalidError] for a completion that no store accepts.
func (c *Completion) Check() error {
	if err := CheckID(c.ID); err != nil {
		return err
	}
	if err := c.Answer.Check(); err != nil {
		return err
	}
	return checkDelay("retry in", c.RetryIn)
}

// Check returns a [*InvalidError] for an answer that is none, or too large.
func (a *Answer) Check() error {
	switch {
	case a.Known < NotSent || a.Known > Effective || a.Known == Open:
		return &InvalidError{"answer", a.Known.String()}
	case len(a.Result) > MaxBody:
		return &InvalidError{"result", fmt.Sprintf("%d bytes; at most %d", len(a.Result), MaxBody)}
	}
	return CheckReason(a.Reason, false)
}

// Check returns a [*InvalidError] for a response that no store accepts.
func (r *Response) Check() error {
	if err := CheckID(r.ID); err != nil {
		return err
	}
	if r.Number < 0 || r.Number == 0 && r.Known != Effective && r.Known != Refused {
		return &InvalidError{"attempt", "none, and the answer is neither effective nor refused"}
	}
	return r.Answer.Check()
}

// Check returns a [*InvalidError] for a request that no store accepts.
func (r *DueRequest) Check() error {
	if err := checkCount("kinds", len(r.Kinds), MaxKinds); err != nil {
		return err
	}
	for _, k := range r.Kinds {
		if err := checkText("kind", k, 1, MaxKind); err != nil {
			return err
		}
	}
	if err := checkCount("limit", r.Limit, MaxBatch); err != nil {
		return err
	}
	if r.Hold <= 0 {
		return &InvalidError{"hold", fmt.Sprintf("%v; want more than 0", r.Hold)}
	}
	return checkDelay("hold", r.Hold)
}

// Check returns a [*InvalidError] for a finding that no store accepts.
func (i *Inquiry) Check() error {
	if err := CheckID(i.ID); err != nil {
		return err
	}
	switch {
	case i.Finding < Found || i.Finding > NotObserved:
		return &InvalidError{"finding", fmt.Sprint(int(i.Finding))}
	case i.AsOf < 0:
		return &InvalidError{"as of", "a negative number"}
	case len(i.Result) > MaxBody:
		return &InvalidError{"result", fmt.Sprintf("%d bytes; at most %d", len(i.Result), MaxBody)}
	}
	if err := checkDelay("ask in", i.AskIn); err != nil {
		return err
	}
	return CheckReason(i.Reason, false)
}

// Check returns a [*InvalidError] for a request that no store accepts.
func (r *ListRequest) Check() error {
	for _, s := range r.States {
		if s < Pending || s > Cancelled {
			return &InvalidError{"state", s.String()}
		}
	}
	for field, text := range map[string]string{"kind": r.Kind, "prefix": r.Prefix, "after": r.After} {
		if err := checkText(field, text, 0, MaxID); err != nil {
			return err
		}
	}
	return checkCount("limit", r.Limit, MaxList)
}

// Check returns a [*InvalidError] for a verdict that no store accepts.
func (v *Verdict) Check() error {
	if err := CheckID(v.ID); err != nil {
		return err
	}
	if v.State != Succeeded && v.State != Failed {
		return &InvalidError{"verdict", v.State.String() + "; want succeeded or failed"}
	}
	if len(v.Result) > MaxBody {
		return &InvalidError{"result", fmt.Sprintf("%d bytes; at most %d", len(v.Result), MaxBody)}
	}
	return CheckReason(v.Reason, true)
}

// Check returns a [*InvalidError] for a request that no store accepts.
func (r *PruneRequest) Check() error {
	switch {
	case r.Bodies < 0 || r.Records < 0 || r.Forget < 0:
		return &InvalidError{"age", "negative"}
	case r.Forget > 0 && r.Forget < MinForget:
		return &InvalidError{"forget", fmt.Sprintf("%v; at least %v, or an operation that is submitted again would be done again", r.Forget, MinForget)}
	case r.Bodies == 0 && r.Records == 0 && r.Forget == 0:
		return &InvalidError{"age", "none is given"}
	case r.Records > 0 && r.Bodies > r.Records, r.Forget > 0 && max(r.Bodies, r.Records) > r.Forget:
		return &InvalidError{"age", "bodies are forgotten before records, and records before the operation"}
	}
	return checkCount("limit", r.Limit, MaxPrune)
}

func checkText(field, text string, least, most int) error {
	switch {
	case len(text) < least:
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

func checkCount(field string, n, most int) error {
	if n < 1 || n > most {
		return &InvalidError{field, fmt.Sprintf("%d; want 1 to %d", n, most)}
	}
	return nil
}

func checkDelay(field string, d time.Duration) error {
	if d < 0 || d > MaxDelay {
		return &InvalidError{field, fmt.Sprintf("%v; want 0 to %v", d, MaxDelay)}
	}
	return nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < time.Millisecond || ttl > MaxTTL {
		return &InvalidError{"ttl", fmt.Sprintf("%v; want 1ms to %v", ttl, MaxTTL)}
	}
	return nil
}
