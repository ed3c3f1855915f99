package admissionconnect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/admission"
	"github.com/tenure-go/tenure/budget/budgetconnect"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

const (
	changePath = "/shop.Orders/Change" // work
	followPath = "/shop.Orders/Follow" // work in a stream
	renewPath  = "/shop.Orders/Renew"
)

func byProcedure(procedure string) admission.Priority {
	return map[string]admission.Priority{changePath: admission.Work, followPath: admission.Work, renewPath: admission.Renewal}[procedure]
}

type (
	empty = emptypb.Empty
	build = func(*admission.Limiter) connect.Interceptor
)

// world is a service on a real socket, and its clients.
type world struct {
	l                            *admission.Limiter
	change, follow, renew, plain *connect.Client[empty, empty] // plain is change without our client's interceptor
	entered, leave               chan struct{}
	calls, running, most         atomic.Int32
	server                       *httptest.Server
}

func (w *world) work() {
	w.calls.Add(1)
	if n := w.running.Add(1); n > w.most.Load() {
		w.most.Store(n)
	}
	w.entered <- struct{}{}
	<-w.leave
	w.running.Add(-1)
}

func start(t *testing.T, o admission.Options, build build, options ...connect.ClientOption) *world {
	t.Helper()
	l, err := admission.New(o)
	if err != nil {
		t.Fatal(err)
	}
	first, err := budgetconnect.NewServer(budgethttp.Limits{Most: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{l: l, entered: make(chan struct{}, 100), leave: make(chan struct{})}
	within := connect.WithInterceptors(first, build(l))
	mux := http.NewServeMux()
	mux.Handle(changePath, connect.NewUnaryHandler(changePath, func(context.Context, *connect.Request[empty]) (*connect.Response[empty], error) {
		w.work()
		return connect.NewResponse(&empty{}), nil
	}, within))
	mux.Handle(followPath, connect.NewServerStreamHandler(followPath, func(context.Context, *connect.Request[empty], *connect.ServerStream[empty]) error {
		w.work()
		return nil
	}, within))
	mux.Handle(renewPath, connect.NewUnaryHandler(renewPath, func(context.Context, *connect.Request[empty]) (*connect.Response[empty], error) {
		return connect.NewResponse(&empty{}), nil
	}, within))
	w.server = httptest.NewUnstartedServer(mux)
	w.server.EnableHTTP2 = true
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	below := &http.Client{Transport: &budgethttp.Transport{Base: w.server.Client().Transport}}
	client := func(path string, more ...connect.ClientOption) *connect.Client[empty, empty] {
		return connect.NewClient[empty, empty](below, w.server.URL+path, append(more, options...)...)
	}
	known := connect.WithInterceptors(budgetconnect.NewClient())
	w.change, w.follow, w.renew = client(changePath, known), client(followPath, known), client(renewPath, known)
	w.plain = connect.NewClient[empty, empty](w.server.Client(), w.server.URL+changePath, options...)
	return w
}

func (w *world) unary(ctx context.Context) error {
	_, err := w.change.CallUnary(ctx, connect.NewRequest(&empty{}))
	return err
}

func (w *world) stream(ctx context.Context) error {
	stream, err := w.follow.CallServerStream(ctx, connect.NewRequest(&empty{}))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
	}
	return stream.Err()
}

// numbered is a call of another client, which says itself which attempt it is.
func (w *world) numbered(n int) func(context.Context) error {
	return func(ctx context.Context) error {
		req := connect.NewRequest(&empty{})
		req.Header().Set(budget.HeaderAttempt, strconv.Itoa(n))
		_, err := w.plain.CallUnary(ctx, req)
		return err
	}
}

// hold has so many calls in the service, which stay until it is told to let them go; end says how they ended.
func (w *world) hold(ctx context.Context, calls ...func(context.Context) error) (end func() error) {
	ended := make(chan error, len(calls))
	for _, call := range calls {
		go func() { ended <- call(ctx) }()
		<-w.entered
	}
	return func() error {
		close(w.leave)
		var failed error
		for range calls {
			failed = errors.Join(failed, <-ended)
		}
		return failed
	}
}

// wantShed says what is wrong with the error of a call that was to be shed.
func wantShed(err error) error {
	var known *budget.Error
	if !errors.As(err, &known) || known.Class != budget.Refused || !known.Again || known.NoRetry || known.RetryAfter < time.Second || known.RetryAfter > 3*time.Second || connect.CodeOf(err) != connect.CodeUnavailable {
		return fmt.Errorf("not shed as it ought to be: %w", err)
	}
	return nil
}

type story func(ctx context.Context, t *testing.T, build build, options ...connect.ClientOption) error

// stories are what holds of a service that is let work in to; each returns what is wrong.
func stories() map[string]story {
	return map[string]story{
		"what is shed is refused, with a hint": shedding, "renewals are let in": renewing, "retries and hedges take places of their own": repeating, "nobody waits longer than its caller": waiting,
	}
}

func shedding(ctx context.Context, t *testing.T, build build, options ...connect.ClientOption) error {
	t.Helper()
	w := start(t, admission.Options{Least: 1, Most: 1, Wait: time.Millisecond}, build, options...)
	end := w.hold(ctx, w.unary)
	wrong := errors.Join(wantShed(w.unary(ctx)), wantShed(w.stream(ctx)), w.hurried(ctx))
	var plain *connect.Error
	if err := w.numbered(1)(ctx); !errors.As(err, &plain) || plain.Code() != connect.CodeUnavailable {
		wrong = errors.Join(wrong, fmt.Errorf("to other clients: %w", err))
	} else if seconds, err := strconv.Atoi(plain.Meta().Get("Retry-After")); err != nil || seconds < 1 || seconds > 3 {
		wrong = errors.Join(wrong, fmt.Errorf("Retry-After %q", plain.Meta().Get("Retry-After")))
	}
	if err := end(); err != nil || w.calls.Load() != 1 {
		wrong = errors.Join(wrong, err, fmt.Errorf("%d calls were served", w.calls.Load()))
	}
	return errors.Join(wrong, w.unary(ctx)) // its place came free
}

func renewing(ctx context.Context, t *testing.T, build build, options ...connect.ClientOption) error {
	t.Helper()
	w := start(t, admission.Options{Least: 1, Most: 1, Wait: time.Millisecond, Kept: 1}, build, options...)
	end := w.hold(ctx, w.stream)
	_, err := w.renew.CallUnary(ctx, connect.NewRequest(&empty{}))
	return errors.Join(err, end())
}

// repeating: a caller's first attempt and its hedge are in the service, and take both of its places. Retries and more hedges find none.
func repeating(ctx context.Context, t *testing.T, build build, options ...connect.ClientOption) error {
	t.Helper()
	w := start(t, admission.Options{Least: 2, Most: 2, Wait: time.Millisecond}, build, options...)
	end := w.hold(ctx, w.numbered(1), w.numbered(2))
	wrong := error(nil)
	if n := w.l.Numbers(); n.InFlight != 2 || n.By[admission.Work].Repeats != 1 {
		wrong = fmt.Errorf("a first attempt and its hedge take %d places: %+v", n.InFlight, n)
	}
	again, cancel := context.WithTimeout(ctx, 2*time.Second) // a twin lets it in, and it stays
	defer cancel()
	for n := 2; n <= 4; n++ {
		if err := w.numbered(n)(again); connect.CodeOf(err) != connect.CodeUnavailable {
			wrong = errors.Join(wrong, fmt.Errorf("attempt %d: %w", n, err))
			break
		}
	}
	wrong = errors.Join(wrong, w.retrying(again))
	if err := end(); err != nil || w.most.Load() > 2 {
		wrong = errors.Join(wrong, err, fmt.Errorf("%d at a time", w.most.Load()))
	}
	return wrong
}

// hurried: who has less time than the hint asks for does not come back before it, and not at all.
func (w *world) hurried(ctx context.Context) error {
	b, err := budget.Start(ctx, time.Minute, budget.Reserve(time.Minute-990*time.Millisecond))
	if err != nil {
		return err
	}
	defer b.End()
	tries := 0
	err = budget.Do(b.Context(), budget.Policy{Base: 1, Most: 1}, func(context.Context) error { tries++; return w.unary(ctx) })
	if !errors.Is(err, budget.ErrNoTime) || tries != 1 {
		return fmt.Errorf("in a hurry: %d tries, %w", tries, err)
	}
	return nil
}

// retrying: both attempts of a Do are shed.
func (w *world) retrying(ctx context.Context) error {
	b, err := budget.Start(ctx, time.Minute)
	if err != nil {
		return err
	}
	defer b.End()
	var wrong error
	err = budget.Do(b.Context(), budget.Policy{Attempts: 2, Base: 1, Most: 1}, func(ctx context.Context) error {
		err := w.unary(ctx)
		if wrong = errors.Join(wrong, wantShed(err)); wrong != nil {
			return err
		}
		return &budget.Error{Class: budget.Refused, Again: true, Err: err} // without the hint, which the test does not wait for
	})
	if !errors.Is(err, budget.ErrAttempts) {
		wrong = errors.Join(wrong, fmt.Errorf("retries: %w", err))
	}
	return wrong
}

// waiting: a call whose turn does not come is shed while its caller still waits, and does not run later. Its place in the queue is nobody's then.
func waiting(ctx context.Context, t *testing.T, build build, options ...connect.ClientOption) error {
	t.Helper()
	w := start(t, admission.Options{Least: 1, Most: 1, Wait: time.Minute}, build, options...)
	end := w.hold(ctx, w.unary)
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	wrong := wantShed(w.unary(short))
	if n := w.l.Numbers(); n.By[admission.Work].Queued != 0 {
		wrong = errors.Join(wrong, fmt.Errorf("still in the queue: %+v", n))
	}
	wrong = errors.Join(wrong, end(), w.unary(ctx))
	if n := w.calls.Load(); n != 2 {
		wrong = errors.Join(wrong, fmt.Errorf("%d calls were served", n))
	}
	return wrong
}

func ours(l *admission.Limiter) connect.Interceptor { return New(l, byProcedure) }

// TestStories: they hold on real sockets, in each protocol.
func TestStories(t *testing.T) {
	for protocol, options := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}} {
		for name, story := range stories() {
			t.Run(protocol+": "+name, func(t *testing.T) {
				if err := story(t.Context(), t, ours, options...); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// twin makes something else of unary calls.
type twin struct {
	*server
	unary func(ctx context.Context, req connect.AnyRequest, own, next connect.UnaryFunc) (connect.AnyResponse, error)
}

func (d twin) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	own := d.server.WrapUnary(next)
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		return d.unary(ctx, req, own, next)
	}
}

// TestTwins: each is caught by the story that it belongs to.
func TestTwins(t *testing.T) {
	for name, c := range map[string]struct {
		caught   string
		priority func(string) admission.Priority
		unary    func(ctx context.Context, req connect.AnyRequest, own, next connect.UnaryFunc) (connect.AnyResponse, error)
	}{
		"a code without a hint": {"what is shed is refused, with a hint", byProcedure, func(ctx context.Context, req connect.AnyRequest, own, _ connect.UnaryFunc) (connect.AnyResponse, error) {
			reply, err := own(ctx, req)
			if err != nil {
				return nil, connect.NewError(connect.CodeOf(err), errors.New("busy"))
			}
			return reply, nil
		}},
		"everything is work": {"renewals are let in", nil, func(ctx context.Context, req connect.AnyRequest, own, _ connect.UnaryFunc) (connect.AnyResponse, error) {
			return own(ctx, req)
		}},
		"repeats go around it": {"retries and hedges take places of their own", byProcedure, func(ctx context.Context, req connect.AnyRequest, own, next connect.UnaryFunc) (connect.AnyResponse, error) {
			if budgethttp.CallersAttempt(ctx) > 1 {
				return next(ctx, req)
			}
			return own(ctx, req)
		}},
		"it waits for its turn, whoever waits for it": {"nobody waits longer than its caller", byProcedure, func(ctx context.Context, req connect.AnyRequest, own, _ connect.UnaryFunc) (connect.AnyResponse, error) {
			return own(context.WithoutCancel(ctx), req)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			err := stories()[c.caught](t.Context(), t, func(l *admission.Limiter) connect.Interceptor { return twin{&server{l, c.priority}, c.unary} })
			if err == nil {
				t.Errorf("%q does not catch it", c.caught)
			}
			t.Log(err)
		})
	}
}

// request is one that is served, of no procedure in particular.
func request() connect.AnyRequest { return connect.NewRequest(&empty{}) }

// TestWhatTheLimiterLearns: calls that outlive their callers lower the limit; failures, panics and long streams do not change it; each gives its place back.
func TestWhatTheLimiterLearns(t *testing.T) {
	answer := func(err error) connect.UnaryFunc {
		return func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
			<-time.After(time.Second)
			return nil, err
		}
	}
	for name, c := range map[string]struct {
		call  func(ctx context.Context, i connect.Interceptor)
		falls bool
	}{
		"late": {func(ctx context.Context, i connect.Interceptor) {
			ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			_, _ = i.WrapUnary(answer(nil))(ctx, request())
		}, true},
		"failed": {func(ctx context.Context, i connect.Interceptor) {
			_, _ = i.WrapUnary(answer(errors.New("x")))(ctx, request())
		}, false},
		"a panic": {func(ctx context.Context, i connect.Interceptor) {
			defer func() { _ = recover() }()
			_, _ = i.WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { panic("broken") })(ctx, request())
		}, false},
		"long streams": {func(ctx context.Context, i connect.Interceptor) {
			_ = i.WrapStreamingHandler(func(context.Context, connect.StreamingHandlerConn) error { <-time.After(time.Minute); return nil })(ctx, conn{})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := admission.New(admission.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for range 100 {
					var wg sync.WaitGroup
					for range 20 {
						wg.Go(func() { c.call(t.Context(), New(l, nil)) })
					}
					wg.Wait()
				}
				if n := l.Numbers(); n.InFlight != 0 || n.By[admission.Work].Admitted == 0 || (n.Limit < 20) != c.falls {
					t.Errorf("%+v", n)
				}
			})
		})
	}
}

// conn is a stream of no procedure in particular.
type conn struct{ connect.StreamingHandlerConn }

func (conn) Spec() connect.Spec         { return connect.Spec{} }
func (conn) RequestHeader() http.Header { return nil }

// TestNoPriority: a priority that is none is the service's own fault, and nothing is served.
func TestNoPriority(t *testing.T) {
	l, err := admission.New(admission.Options{})
	if err != nil {
		t.Fatal(err)
	}
	i := New(l, func(string) admission.Priority { return 0 })
	_, err = i.WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { panic("served") })(t.Context(), request())
	if connect.CodeOf(err) != connect.CodeInternal {
		t.Error(err)
	}
}
