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
	asked, err := d.store.Submit(r.Context(), operation.SubmitRequest{ID: id, Kind: d.o.Kind, Fingerprint: fingerprint(d.o.Kind, r, body)})
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	d.serve(w, r, asked.Record)
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

// fingerprint is of what makes two requests the same. Lengths keep the parts from running into each other.
func fingerprint(kind string, r *http.Request, body []byte) operation.Fingerprint {
	var whole bytes.Buffer
	for _, part := range []string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Content-Type")} {
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
		problem(w, http.StatusServiceUnavailable, "unavailable", "The request could not be recorded. Nothing was done. Ask again with the same key.", time.Second)
	}
}

// serve answers from the record, or runs the handler as an attempt of it.
func (d *door) serve(w http.ResponseWriter, r *http.Request, rec operation.Record) {
	if rec.State == operation.Attempting && rec.StepIn == 0 { // its process is gone: nobody else may be there to say so
		if _, err := d.store.Expire(r.Context(), operation.MaxBatch); err != nil {
			d.refuse(w, r, err)
			return
		}
	}
	if !rec.State.Decided() {
		jobs, err := d.store.Claim(r.Context(), d.o.claim(rec.ID))
		if err != nil {
			d.refuse(w, r, err) // if it was applied all the same, the attempt is unknown when it expires; the handler does not run
			return
		}
		if len(jobs) == 1 {
			d.run(w, r, jobs[0])
			return
		}
		if rec, err = d.store.Get(r.Context(), rec.ID); err != nil {
			d.refuse(w, r, err)
			return
		}
	}
	d.tell(w, rec)
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
		problem(w, http.StatusConflict, rec.State.String(), "This request was not done, and will not be under this key: "+rec.Reason, 0)
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
	if panicked == nil {
		answer.WriteHeader(http.StatusOK)
		done.Answer = operation.Answer{Known: d.o.Known(answer.status), Reason: "status " + strconv.Itoa(answer.status)}
		if done.Known == operation.Effective {
			done.Result, done.Reason = answer.answer(), ""
		}
	}
	// The caller may have gone; what was done is recorded all the same.
	err := d.record(context.WithoutCancel(r.Context()), done, job.Remaining)
	switch {
	case panicked != nil && errors.Is(panicked, http.ErrAbortHandler):
		panic(http.ErrAbortHandler)
	case panicked != nil:
		problem(w, http.StatusInternalServerError, "unknown", "The request failed, and what it did is not known. Ask again with the same key.", time.Minute)
	case err != nil:
		d.o.Logger.ErrorContext(ctx, "an answer could not be recorded", "operation", job.ID, "attempt", job.Number, "error", err)
		problem(w, http.StatusInternalServerError, "unknown", "The request was processed, and its answer could not be recorded. Ask again with the same key.", time.Minute)
	default:
		answer.send(w)
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

// record completes the attempt. It asks again while it is not known whether that was applied, for as long as the claim lasts, and at most 20 times. A handler that has completed its attempt itself
// is found to have done so.
func (d *door) record(ctx context.Context, done operation.Completion, left time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, max(left, 5*time.Second))
	defer cancel()
	var err error
	pause := 10 * time.Millisecond
	for range 20 {
		var errs []error
		if errs, err = d.store.Complete(ctx, []operation.Completion{done}); err == nil {
			err = errs[0]
			break
		}
		if !errors.Is(err, operation.ErrUnknown) && !errors.Is(err, operation.ErrUnavailable) {
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
	if !errors.Is(err, operation.ErrStale) {
		return err
	}
	// Somebody took it over, or it is complete already: what this attempt has learned is evidence.
	_, err = d.store.Respond(ctx, operation.Response{ID: done.ID, Number: done.Number, Answer: done.Answer})
	return err
}
