package operationhttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/operation"
)

const (
	storeMost = 5 * time.Second // for the store to find out whether a handler is to run, and at least for its answer to be recorded
	tries     = 20              // at one question to a store that does not answer
)

// New returns a middleware: see the package for what it does. It returns an error matching [ErrOptions] for options that make no sense. The middleware is safe for concurrent use, and any number of
// processes may share a store.
//
// An answer is kept back until it is recorded, so that a handler cannot stream; informational answers (1xx), hijacking and flushing are not available to it.
func New(store Store, o Options) (func(http.Handler) http.Handler, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler { return &door{store: store, o: o, next: next} }, nil
}

type attemptKey struct{}

// Attempt is the attempt that a handler runs under, for a handler that completes it in its own transaction. False: the request came without a key.
func Attempt(ctx context.Context) (operation.Job, bool) {
	job, ok := ctx.Value(attemptKey{}).(operation.Job)
	return job, ok
}

type door struct {
	store Store
	o     Options
	next  http.Handler
}

// ServeHTTP implements [http.Handler].
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(d.o.Methods, r.Method) || d.o.Optional && len(r.Header.Values(KeyHeader)) == 0 {
		d.next.ServeHTTP(w, r)
		return
	}
	key, wrong := keyOf(r.Header.Values(KeyHeader))
	if wrong != "" {
		problem(w, http.StatusBadRequest, "key", wrong, 0)
		return
	}
	scope, err := d.o.Scope(r)
	if err != nil || len(scope) > MaxScope || strings.Contains(scope, ":") {
		d.o.Logger.WarnContext(r.Context(), "no scope for an idempotency key", "scope", scope, "error", err)
		problem(w, http.StatusForbidden, "scope", "It is not clear whose key this is. Nothing was done.", 0)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, d.o.MaxBody))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			problem(w, http.StatusRequestEntityTooLarge, "body", "The body is larger than "+strconv.FormatInt(d.o.MaxBody, 10)+" bytes. Nothing was done.", 0)
			return
		}
		problem(w, http.StatusBadRequest, "body", "The body did not arrive whole. Nothing was done.", 0)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	id := d.o.Kind + ":" + scope + ":" + key
	if job, ok := Attempt(r.Context()); ok && job.ID == id { // it stands in the way twice, and this is the attempt that the first one has begun
		d.next.ServeHTTP(w, r)
		return
	}
	// From here on a caller that goes ends nothing: a claim whose reply it does not await would be unknown, and so would what a handler does that is stopped half-way. It asks again, and gets the answer.
	r = r.WithContext(context.WithoutCancel(r.Context()))
	ctx, cancel := context.WithTimeout(r.Context(), storeMost)
	defer cancel()
	asked, err := d.store.Submit(ctx, operation.SubmitRequest{ID: id, Kind: d.o.Kind, Fingerprint: fingerprint(d.o.Kind, r, body)})
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	job, rec, err := d.begin(ctx, asked.Record)
	switch {
	case err != nil:
		d.refuse(w, r, err)
	case job != nil:
		d.run(w, r, *job)
	default:
		d.tell(w, rec)
	}
}

// keyOf reads the header: a string of structured fields (RFC 9651), in quotes, or, as most clients send it, a bare one.
func keyOf(values []string) (key, wrong string) {
	switch {
	case len(values) == 0:
		return "", "This request needs an " + KeyHeader + " header: a value of your own that no other request has, such as a UUID. Nothing was done."
	case len(values) > 1:
		return "", "There are several " + KeyHeader + " headers. Nothing was done."
	}
	key = strings.TrimSpace(values[0])
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	if key == "" || len(key) > MaxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }) {
		return "", KeyHeader + " must be 1 to " + strconv.Itoa(MaxKey) + " visible ASCII characters without quotes and backslashes inside. Nothing was done."
	}
	return key, ""
}

// fingerprint is of what makes two requests the same. Lengths keep the parts from running into each other. The target is the one that the caller sent: two routes whose prefixes were stripped on the way here
// have one path, and are two.
func fingerprint(kind string, r *http.Request, body []byte) operation.Fingerprint {
	target := r.RequestURI
	if target == "" { // not from a server
		target = r.URL.RequestURI()
	}
	var whole bytes.Buffer
	for _, part := range []string{r.Method, target, r.Header.Get("Content-Type")} {
		whole.WriteString(strconv.Itoa(len(part)) + ":" + part)
	}
	whole.Write(body)
	return operation.FingerprintOf(kind, whole.Bytes())
}

func (d *door) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, operation.ErrMismatch):
		problem(w, http.StatusUnprocessableEntity, "mismatch", "This key was used for another request. Nothing was done.", 0)
	case errors.Is(err, operation.ErrInvalid):
		problem(w, http.StatusBadRequest, "key", "The key, the scope or the request cannot be recorded. Nothing was done.", 0)
	default:
		d.o.Logger.ErrorContext(r.Context(), "a request could not be recorded", "error", err)
		problem(w, http.StatusServiceUnavailable, "unavailable", "The request was not handled: its key cannot be looked up now. What became of an earlier request under the key is not said by this. Ask again with the same key.", time.Second)
	}
}

// begin begins an attempt, if one may begin now; otherwise it returns the record as it stands.
func (d *door) begin(ctx context.Context, rec operation.Record) (*operation.Job, operation.Record, error) {
	if rec.State == operation.Attempting && rec.StepIn == 0 { // its process is gone: nobody else may be there to say so
		if _, err := d.store.Expire(ctx, operation.MaxBatch); err != nil {
			return nil, rec, err
		}
	}
	if rec.State.Decided() {
		return nil, rec, nil
	}
	req := d.o.claim(rec.ID)
	jobs, err := d.store.Claim(ctx, req)
	if err != nil {
		if errors.Is(err, operation.ErrUnknown) {
			d.giveBack(ctx, req)
		}
		return nil, rec, err
	}
	if len(jobs) == 1 {
		return &jobs[0], rec, nil
	}
	rec, err = d.store.Get(ctx, rec.ID)
	return nil, rec, err
}

// giveBack tells that nothing was sent of an attempt that was begun by a claim whose reply was lost, which the label finds. Where that fails too, the attempt is unknown when it expires.
func (d *door) giveBack(ctx context.Context, claim operation.ClaimRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeMost) // the claim may have taken all of its time
	defer cancel()
	rec, err := d.store.Get(ctx, claim.ID)
	if err != nil || rec.Current() == 0 {
		return
	}
	last := rec.Attempts[len(rec.Attempts)-1]
	if last.Worker != claim.Worker || last.Known != operation.Open {
		return
	}
	done := operation.Completion{Ref: operation.Ref{ID: rec.ID, Number: last.Number}, Answer: operation.Answer{Known: operation.NotSent, Reason: "the reply to its claim was lost"}}
	if _, err := d.record(ctx, done); err != nil {
		d.o.Logger.ErrorContext(ctx, "an attempt whose claim's reply was lost could not be given back", "operation", rec.ID, "attempt", last.Number, "error", err)
	}
}

// tell answers from the record alone.
func (d *door) tell(w http.ResponseWriter, rec operation.Record) {
	switch {
	case rec.State == operation.Succeeded && rec.Kept == operation.Whole:
		replay(w, rec.Result)
	case rec.State == operation.Succeeded:
		problem(w, http.StatusConflict, "forgotten", "This request was done. Its answer is not kept any more.", 0)
	case rec.State == operation.Uncertain:
		problem(w, http.StatusConflict, "unknown", "What became of an earlier request under this key is not known yet. Nothing is done until it is. Ask again with the same key.", time.Minute)
	case rec.State.Decided():
		problem(w, http.StatusConflict, rec.State.String(), "This request was not done, and will not be under this key.", 0) // the reason is an operator's, for colleagues
	default:
		problem(w, http.StatusConflict, "progress", "A request under this key is in progress. Ask again with the same key.", max(rec.StepIn, time.Second))
	}
}

// run performs the attempt, and answers once its answer is recorded.
func (d *door) run(w http.ResponseWriter, r *http.Request, job operation.Job) {
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), attemptKey{}, job), job.Remaining)
	defer cancel()
	answer := &recorder{header: http.Header{}}
	panicked := d.call(answer, r.WithContext(ctx))
	done := operation.Completion{Ref: job.Ref, Answer: operation.Answer{Known: operation.NoAnswer, Reason: "the handler panicked"}}
	silent := panicked == nil && answer.status == 0 && ctx.Err() != nil // it has given up, and not said so
	switch {
	case silent:
		done.Reason = "the handler's time was over, and it said nothing"
	case panicked == nil:
		answer.WriteHeader(http.StatusOK)
		done.Answer = operation.Answer{Known: d.o.Known(answer.status), Reason: "status " + strconv.Itoa(answer.status)}
		if done.Known == operation.Effective {
			done.Result, done.Reason = answer.answer(), ""
		}
	}
	record, stop := context.WithTimeout(r.Context(), max(job.Remaining, storeMost))
	defer stop()
	other, err := d.record(record, done)
	switch {
	case panicked != nil && errors.Is(panicked, http.ErrAbortHandler):
		panic(http.ErrAbortHandler)
	case panicked != nil || silent:
		problem(w, http.StatusInternalServerError, "unknown", "The request failed, and what it did is not known. Ask again with the same key.", time.Minute)
	case err != nil:
		d.o.Logger.ErrorContext(ctx, "an answer could not be recorded", "operation", job.ID, "attempt", job.Number, "error", err)
		problem(w, http.StatusInternalServerError, "unknown", "The request was processed, and its answer could not be recorded. Ask again with the same key.", time.Minute)
	case other != nil:
		d.o.Logger.ErrorContext(ctx, "an answer came after the decision, and is not the one that decided", "operation", job.ID, "attempt", job.Number)
		d.tell(w, *other)
	default:
		answer.send(w, done.Known)
	}
}

// call runs the handler, and returns what it panicked with.
func (d *door) call(w http.ResponseWriter, r *http.Request) (panicked error) {
	defer func() {
		if p := recover(); p != nil {
			if panicked, _ = p.(error); panicked == nil {
				panicked = errors.New("panic")
			}
			if !errors.Is(panicked, http.ErrAbortHandler) {
				d.o.Logger.ErrorContext(r.Context(), "a handler panicked", "panic", p, "stack", string(debug.Stack()))
			}
		}
	}()
	d.next.ServeHTTP(w, r)
	return nil
}

// record completes the attempt. It asks again while it is not known whether that was applied, until ctx ends, and at most 20 times. Where the attempt is not the current one any more, or complete already, what it has learned
// is evidence; a handler that has completed its attempt itself is found to have done so. other is the record where another answer has decided, which is then everybody's.
func (d *door) record(ctx context.Context, done operation.Completion) (other *operation.Record, err error) {
	err = d.insist(ctx, func() error {
		errs, err := d.store.Complete(ctx, []operation.Completion{done})
		if err != nil {
			return err
		}
		return errs[0]
	})
	if !errors.Is(err, operation.ErrStale) {
		return nil, err
	}
	var rec operation.Record
	if done.Known == operation.Effective {
		if err := d.insist(ctx, func() (err error) { rec, err = d.store.Get(ctx, done.ID); return err }); err != nil {
			return nil, err
		}
		if decidedBy(&rec, done.Ref) {
			return nil, nil
		}
	}
	err = d.insist(ctx, func() (err error) {
		rec, err = d.store.Respond(ctx, operation.Response{ID: done.ID, Number: done.Number, Answer: done.Answer})
		return err
	})
	switch {
	case err != nil && !errors.Is(err, operation.ErrStale) && !errors.Is(err, operation.ErrDecided):
		return nil, err
	case err != nil && rec.State.Decided() && done.Known == operation.Effective:
		return &rec, nil
	}
	return nil, nil // it is recorded, and what it says decides nothing
}

// decidedBy reports whether the attempt's own answer has decided.
func decidedBy(rec *operation.Record, attempt operation.Ref) bool {
	i := slices.IndexFunc(rec.Attempts, func(a operation.Attempt) bool { return a.Number == attempt.Number })
	return i >= 0 && rec.State == operation.Succeeded && rec.Attempts[i].Known == operation.Effective && bytes.Equal(rec.Attempts[i].Result, rec.Result)
}

// insist asks until there is an answer.
func (d *door) insist(ctx context.Context, ask func() error) error {
	pause := 10 * time.Millisecond
	for n := 1; ; n++ {
		err := ask()
		if n == tries || !errors.Is(err, operation.ErrUnknown) && !errors.Is(err, operation.ErrUnavailable) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		pause = min(2*pause, time.Second)
	}
}
