package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// Handler says how operations of one kind are done. It is handed to a worker and to a reconciler by [Handle]; its functions are called from many goroutines at once.
type Handler[Req, Res any] struct {
	Kind string // see [operation.Kind]

	// Perform has the effect. Whatever it sends carries [Attempt.Key], by which the provider knows the effect, and [Attempt.NotAfter] where the provider enforces one.
	//
	// What it returns is what is known. nil: the effect happened. An error goes by its class in package budget, of the attempt as a whole, where it makes several calls: not sent (certainly nothing left this process that can have an
	// effect), refused (for now; for good where it is marked by [Final]), and everything else is unknown, an error without a class included. A panic is contained, logged, and unknown. ctx carries a budget
	// ([budget.From]) and ends with the timeout, when the claim is lost, when the lease is, or when the worker stops hard; [context.Cause] says which. Whoever ignores it keeps its slot for [Options.Grace]; then the
	// attempt is reported as without an answer, and what Perform returns later is evidence.
	Perform func(ctx context.Context, a *Attempt, req Req) (Res, error)

	// Inquire asks the provider what became of an operation, by its id. Optional. See [Finding] for what may be concluded. An error says that the provider could not be asked, and nothing about the operation. ctx ends
	// after the Timeout, and carries a budget.
	Inquire func(ctx context.Context, rec *operation.Record, req Req) (Finding[Res], error)

	// Compensate makes the submission of the operation that undoes one which succeeded although its cancelling was wished for. Optional. Its id follows from id alone, so that
	// two calls make one operation; what it compensates is filled in. [operation.Kind.Request] makes one.
	Compensate func(id string, req Req, res Res) (operation.SubmitRequest, error)

	// Lease names what must be owned while Perform runs; empty: nothing. Held elsewhere, the attempt is not sent, and comes again later: it counts as an attempt. Optional; the worker needs [Options.Leases].
	Lease func(req Req) string

	// Local: the only effect stands in the transaction in which the store's CompleteTx reports the attempt (see [Attempt.Completion]). What was not completed did not happen then, whatever the error, so errors
	// are refusals for now, or for good where they are marked by [Final], and any number of attempts may follow. Without Inquire, Window and NotAfter.
	Local bool

	Timeout time.Duration // of Perform, and of an inquiry; default (0) 30 s, at least 1 ms
	Reserve time.Duration // of that, kept by the budget for answering; default (0) the smaller of a tenth of the Timeout and 1 s
	// Window is how long the provider knows an effect by its key, after the first attempt, less your margin: while another attempt would end within it, an unknown outcome is followed by one. 0: never.
	// [operation.Forever]: the effect is the same however often it is asked for. Otherwise longer than what the store gives an attempt: the Timeout, and the worker's own times in addition.
	Window time.Duration
	// NotAfter is how long after the first attempt the provider itself refuses the effect, because every attempt carries that instant. 0: it does not; and then an operation of which an earlier attempt, under another version of
	// the handler, carried one is not sent by this one, or "it has passed" would say nothing of what this one has sent.
	NotAfter    time.Duration
	MaxAttempts int // of one operation, those that were not sent left out; default (0) 25, most [operation.MaxAttempts]
	Concurrency int // attempts of this kind at once in one worker; default (0) 10, most 1000
	// Base and Most bound the pause after an attempt that did not decide: a random part of Base, of twice that, four times and so on, never of more than Most. Default (0) 1 s and 10 min. What the other side asks for comes on top, a day at most.
	Base, Most time.Duration
	// AskBase and AskMost do the same for inquiries of one operation. Default (0) 1 s and 10 min.
	AskBase, AskMost time.Duration
	// Provider is whom Inquire asks: kinds with the same provider share its pace and its outages. Default: the kind.
	Provider string

	// Redact makes what is stored of a result; RedactReason what is stored of a reason, such as the text of an error. nil: nothing is left out.
	Redact       func(Res) Res
	RedactReason func(string) string
}

// Finding is what an inquiry learned. The zero value is none, and decides nothing.
type Finding[Res any] struct {
	// What is [operation.Found] with the Result; [operation.Closed] where the provider has, in the same step, made sure that the key never has an effect; [operation.PastInstant] where it does not know the key, enforces
	// the instant that every attempt carried, and has told with that answer that the instant has passed by its own clock: no clock of this side concludes that, and the store's may only refuse it; and [operation.NotObserved] in all other cases: a request may be on its way still, so that this decides nothing.
	What   operation.Finding
	Result Res
	Reason string
}

// Entry is a handler whose types are forgotten, for [New] and [NewReconciler], which tell what is wrong with it.
type Entry struct {
	name     string
	provider string
	err      error

	timeout, reserve, window, notAfter time.Duration
	base, most, askBase, askMost       time.Duration
	attempts, concurrency              int
	local                              bool

	decode     func([]byte) (any, error)
	perform    func(ctx context.Context, a *Attempt, req any) (any, error)
	inquire    func(ctx context.Context, rec *operation.Record) (operation.Inquiry, error)
	compensate func(rec *operation.Record) (operation.SubmitRequest, error)
	lease      func(req any) string
	encode     func(res any) (result []byte, problem string)
	redact     func(string) string
}

// Handle forgets the types of a handler. What is wrong with it is told where it is used.
func Handle[Req, Res any](h Handler[Req, Res]) *Entry {
	e := &Entry{
		name: h.Kind, provider: h.Provider, local: h.Local, timeout: h.Timeout, reserve: h.Reserve, window: h.Window, notAfter: h.NotAfter, base: h.Base, most: h.Most,
		askBase: h.AskBase, askMost: h.AskMost, attempts: h.MaxAttempts, concurrency: h.Concurrency, redact: h.RedactReason,
		decode: func(raw []byte) (any, error) { return decode[Req](raw) },
		encode: encoder(h.Redact),
	}
	if h.Perform != nil {
		e.perform = func(ctx context.Context, a *Attempt, req any) (any, error) {
			own, _ := req.(Req) // made by decode; nil where Req is an interface
			return h.Perform(ctx, a, own)
		}
	}
	if h.Inquire != nil {
		e.inquire = func(ctx context.Context, rec *operation.Record) (operation.Inquiry, error) { return h.ask(ctx, e, rec) }
	}
	if h.Compensate != nil {
		e.compensate = h.undo
	}
	if h.Lease != nil {
		e.lease = func(req any) string {
			own, _ := req.(Req)
			return h.Lease(own)
		}
	}
	e.err = e.complete()
	return e
}

func decode[T any](raw []byte) (v T, err error) {
	if len(raw) == 0 { // forgotten, or none was needed
		return v, nil
	}
	defer func() { // in a method of the type's own
		if cause := recover(); cause != nil {
			err = fmt.Errorf("decoding a %T panicked: %v", v, cause)
		}
	}()
	err = json.Unmarshal(raw, &v)
	return v, err
}

// encoder makes what is stored of a result. The effect has happened, so that a result which cannot be stored is left out, and the reason says so.
func encoder[Res any](redact func(Res) Res) func(any) ([]byte, string) {
	return func(v any) (raw []byte, problem string) {
		defer func() { // in Redact, or in a method of the type's own; what it panics with may hold what was to be left out
			if recover() != nil {
				raw, problem = nil, "the result was not stored: making what is stored of it panicked"
			}
		}()
		res, ok := v.(Res)
		if !ok && v != nil {
			return nil, fmt.Sprintf("the result was not stored: it is a %T, not a %T", v, res)
		}
		if _, empty := v.(struct{}); empty {
			return nil, ""
		}
		if redact != nil {
			res = redact(res)
		}
		raw, err := json.Marshal(res)
		switch {
		case err != nil:
			return nil, "the result was not stored: " + err.Error()
		case len(raw) > operation.MaxBody:
			return nil, fmt.Sprintf("the result was not stored: it has %d bytes, and %d are the most", len(raw), operation.MaxBody)
		}
		return raw, ""
	}
}

// ask runs the inquiry, and makes of what it found what is stored.
func (h *Handler[Req, Res]) ask(ctx context.Context, e *Entry, rec *operation.Record) (operation.Inquiry, error) {
	inq := operation.Inquiry{ID: rec.ID, Finding: operation.NotObserved, AsOf: rec.Current()}
	req, err := decode[Req](rec.Request)
	if err != nil {
		return inq, &undecodableError{"request", err}
	}
	found, err := h.Inquire(ctx, rec, req)
	if err != nil {
		return inq, err
	}
	if found.What < operation.Found || found.What > operation.NotObserved {
		return inq, &InvalidError{h.Kind, "finding", fmt.Sprintf("%d; an inquiry says what it found", found.What)}
	}
	inq.Finding, inq.Reason = found.What, e.reason(found.Reason)
	if found.What == operation.Found {
		var problem string
		if inq.Result, problem = e.encode(found.Result); problem != "" {
			inq.Reason = operation.Cut(problem)
		}
	}
	return inq, nil
}

func (h *Handler[Req, Res]) undo(rec *operation.Record) (operation.SubmitRequest, error) {
	req, err := decode[Req](rec.Request)
	if err != nil {
		return operation.SubmitRequest{}, &undecodableError{"request", err}
	}
	res, err := decode[Res](rec.Result)
	if err != nil {
		return operation.SubmitRequest{}, &undecodableError{"result", err}
	}
	sub, err := h.Compensate(rec.ID, req, res)
	sub.Compensates = rec.ID
	return sub, err
}

// undecodableError says that what is stored is no value of the handler's type.
type undecodableError struct {
	what string
	err  error
}

func (e *undecodableError) Error() string {
	return fmt.Sprintf("worker: the stored %s cannot be decoded: %v", e.what, e.err)
}
func (e *undecodableError) Unwrap() error { return e.err }

// reason is a text as it is stored. One that cannot be redacted is not stored.
func (e *Entry) reason(text string) (stored string) {
	defer func() {
		if recover() != nil {
			stored = "not stored: its redaction panicked"
		}
	}()
	if e.redact != nil {
		text = e.redact(text)
	}
	return operation.Cut(text)
}
