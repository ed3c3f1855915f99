package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Kind is what a caller knows of operations of one kind: its name, and the types of its requests and results. It holds nothing, is made where it is needed, and is safe for concurrent use.
type Kind[Req, Res any] struct {
	Name string // 1 to MaxKind bytes
	// Redact makes what is stored of a request, which is also what the worker gets: leave out what it does without. The fingerprint is of the whole request, so that two which
	// differ in what was left out are two. It is a plain hash: of a secret with few possible values it tells who guesses. nil: nothing is left out.
	Redact func(Req) Req
}

// SubmitOption is a choice at [Kind.Submit].
type SubmitOption func(*SubmitRequest)

// RunIn puts the first attempt off by d. Default 0: at once.
func RunIn(d time.Duration) SubmitOption { return func(r *SubmitRequest) { r.RunIn = d } }

// WithPriority sets the priority, 0, the least urgent, to MaxPriority. Default 0.
func WithPriority(p int) SubmitOption { return func(r *SubmitRequest) { r.Priority = p } }

// InOrder lets operations of one key begin one after the other. Default: no order.
func InOrder(key string) SubmitOption { return func(r *SubmitRequest) { r.Order = key } }

// Compensating names the operation that this one undoes.
func Compensating(id string) SubmitOption { return func(r *SubmitRequest) { r.Compensates = id } }

// Request makes the submission of a request, for a store's own ways to submit, such as in a transaction. It returns a [*InvalidError] for a request that JSON does not express.
func (k Kind[Req, Res]) Request(id string, req Req, options ...SubmitOption) (SubmitRequest, error) {
	whole, err := Canonical(req)
	if err != nil {
		return SubmitRequest{}, err
	}
	r := SubmitRequest{ID: id, Kind: k.Name, Request: whole, Fingerprint: FingerprintOf(k.Name, whole)}
	if k.Redact != nil {
		if r.Request, err = Canonical(k.Redact(req)); err != nil {
			return SubmitRequest{}, err
		}
	}
	for _, o := range options {
		o(&r)
	}
	return r, nil
}

// Submit records a request under an id of the caller's, or returns the operation as it stands if it is known. The errors are those of [Store.Submit], and a [*InvalidError] for a request that JSON does not express.
func (k Kind[Req, Res]) Submit(ctx context.Context, store Store, id string, req Req, options ...SubmitOption) (Outcome[Res], error) {
	r, err := k.Request(id, req, options...)
	if err != nil {
		return Outcome[Res]{}, err
	}
	submitted, err := store.Submit(ctx, r)
	if err != nil {
		return Outcome[Res]{}, err
	}
	return k.Outcome(submitted.Record)
}

// Get returns the operation as it stands. The errors are those of [Store.Get] and of [Kind.Outcome].
func (k Kind[Req, Res]) Get(ctx context.Context, store Store, id string) (Outcome[Res], error) {
	rec, err := store.Get(ctx, id)
	if err != nil {
		return Outcome[Res]{}, err
	}
	return k.Outcome(rec)
}

// Wait is [Wait] with the result decoded. With a [*UndecidedError] it returns the operation as it stands all the same.
func (k Kind[Req, Res]) Wait(ctx context.Context, store Store, id string) (Outcome[Res], error) {
	rec, err := Wait(ctx, store, id)
	if rec.ID == "" {
		return Outcome[Res]{}, err
	}
	out, decoding := k.Outcome(rec)
	return out, errors.Join(err, decoding)
}

// Outcome is an operation with its result decoded.
type Outcome[Res any] struct {
	Record
	// Value is the result, where the operation has succeeded and its result is kept; else the zero value.
	Value Res
}

// Outcome decodes the result of a record. It returns a [*MismatchError] for an operation of another kind, and a [*InvalidError] for a result that is no Res: the record comes with both.
func (k Kind[Req, Res]) Outcome(rec Record) (Outcome[Res], error) {
	out := Outcome[Res]{Record: rec}
	switch {
	case rec.Kind != k.Name:
		return out, &MismatchError{ID: rec.ID, What: "kind"}
	case rec.State != Succeeded || len(rec.Result) == 0:
		return out, nil
	}
	if err := json.Unmarshal(rec.Result, &out.Value); err != nil {
		var zero Res
		out.Value = zero
		return out, &InvalidError{"result", fmt.Sprintf("of %q is no %T: %v", rec.ID, zero, err)}
	}
	return out, nil
}

// Canonical is a value as JSON in one form: the names of objects sorted, nothing between the tokens, numbers as they were written. Two programs, or two versions of one, that order the fields of a
// struct otherwise make the same bytes of the same request. It returns a [*InvalidError] for what JSON does not express.
func Canonical(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, &InvalidError{"request", err.Error()}
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // 2^53 + 1 stays what it is
	if err := d.Decode(&tree); err != nil {
		return nil, &InvalidError{"request", err.Error()}
	}
	if raw, err = json.Marshal(tree); err != nil {
		return nil, &InvalidError{"request", err.Error()}
	}
	return raw, nil
}

// The pauses of a wait.
const (
	waitFirst = 20 * time.Millisecond
	waitMost  = time.Second
)

// Wait reads the operation again and again until it is decided, or ctx ends. That the wait ended says nothing of the operation: then Wait returns it as it stood when it was last read, with a
// [*UndecidedError] that matches [ErrUndecided], and the caller may ask again under the same id, as long as it likes.
//
// Wait returns an error matching [ErrNotFound] or [ErrInvalid] at once. A store that cannot be asked is asked again; if it never answered, the record is empty and the [*UndecidedError] has no state.
func Wait(ctx context.Context, store Store, id string) (Record, error) {
	var last Record
	var failure error
	for pause := waitFirst; ; pause = min(2*pause, waitMost) {
		rec, err := store.Get(ctx, id)
		switch {
		case err == nil && rec.State.Decided():
			return rec, nil
		case err == nil:
			last, failure = rec, nil
		case errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid):
			return Record{}, err
		default:
			failure = err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2)) // so that many waiters do not come as one
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return last, &UndecidedError{ID: id, State: last.State, Why: context.Cause(ctx), Failure: failure}
		}
	}
}
