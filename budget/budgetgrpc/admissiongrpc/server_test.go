package admissiongrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/admission"
	"github.com/tenure-go/tenure/budget/budgetgrpc"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// service is one of well-known types: its Check is work, its Watch is work in a stream, its List stands for a renewal.
type service struct {
	grpc_health_v1.UnimplementedHealthServer
	entered, leave chan struct{}
	running, most  atomic.Int32
	calls          atomic.Int32
}

func (s *service) work() {
	s.calls.Add(1)
	if n := s.running.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	s.entered <- struct{}{}
	<-s.leave
	s.running.Add(-1)
}

func (s *service) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.work()
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

func (s *service) Watch(*grpc_health_v1.HealthCheckRequest, grpc_health_v1.Health_WatchServer) error {
	s.work()
	return nil
}

func (s *service) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	return &grpc_health_v1.HealthListResponse{}, nil
}

func byMethod(method string) admission.Priority {
	return map[string]admission.Priority{
		grpc_health_v1.Health_Check_FullMethodName: admission.Work, grpc_health_v1.Health_Watch_FullMethodName: admission.Work, grpc_health_v1.Health_List_FullMethodName: admission.Renewal,
	}[method]
}

// door is the interceptors of Server, or a twin's.
type door interface {
	Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error)
	Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error
}

type world struct {
	*service
	l      *admission.Limiter
	client grpc_health_v1.HealthClient // as package budgetgrpc makes it
	bare   grpc_health_v1.HealthClient
}

// start is a service on a real socket, behind a door. After the test everything in it may leave.
func start(t *testing.T, o admission.Options, build func(*admission.Limiter) door) *world {
	t.Helper()
	l, err := admission.New(o)
	if err != nil {
		t.Fatal(err)
	}
	first, err := budgetgrpc.NewServer(budgethttp.Limits{Most: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	second := build(l)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(first.Unary, second.Unary), grpc.ChainStreamInterceptor(first.Stream, second.Stream))
	s := &service{entered: make(chan struct{}, 100), leave: make(chan struct{})}
	grpc_health_v1.RegisterHealthServer(server, s)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	dial := func(options ...grpc.DialOption) grpc_health_v1.HealthClient {
		conn, err := grpc.NewClient(listener.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return grpc_health_v1.NewHealthClient(conn)
	}
	return &world{s, l, dial(budgetgrpc.DialOptions()...), dial()}
}

func check(ctx context.Context, c grpc_health_v1.HealthClient, options ...grpc.CallOption) error {
	_, err := c.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, options...)
	return err
}

func (w *world) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
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
	if !errors.As(err, &known) || known.Class != budget.Refused || !known.Again || known.NoRetry || known.RetryAfter < time.Second || known.RetryAfter > 3*time.Second || status.Code(err) != codes.Unavailable {
		return fmt.Errorf("not shed as it ought to be: %w", err)
	}
	return nil
}

// stories are what holds of a service that is let work in to; each returns what is wrong.
func stories() map[string]func(ctx context.Context, t *testing.T, build func(*admission.Limiter) door) error {
	return map[string]func(context.Context, *testing.T, func(*admission.Limiter) door) error{
		"what is shed is refused, with a hint": shedding, "renewals are let in": renewing, "retries and hedges take places of their own": repeating, "nobody waits longer than its caller": waiting,
	}
}

func shedding(ctx context.Context, t *testing.T, build func(*admission.Limiter) door) error {
	t.Helper()
	w := start(t, admission.Options{Least: 1, Most: 1, Wait: time.Millisecond}, build)
	end := w.hold(ctx, func(ctx context.Context) error { return check(ctx, w.client) })
	wrong := errors.Join(wantShed(check(ctx, w.client)), wantShed(w.watch(ctx)), w.hurried(ctx))
	var trailer metadata.MD
	bare := check(ctx, w.bare, grpc.Trailer(&trailer))
	if values := trailer.Get(pushBackKey); status.Code(bare) != codes.Unavailable || len(values) != 1 {
		wrong = errors.Join(wrong, fmt.Errorf("to other clients: %w, push-back %v", bare, values))
	} else if millis, err := strconv.Atoi(values[0]); err != nil || millis < 1000 || millis > 3000 {
		wrong = errors.Join(wrong, fmt.Errorf("a push-back of %v", values))
	}
	if err := end(); err != nil || w.calls.Load() != 1 {
		wrong = errors.Join(wrong, err, fmt.Errorf("%d calls were served", w.calls.Load()))
	}
	return errors.Join(wrong, check(ctx, w.client)) // its place came free
}

func renewing(ctx context.Context, t *testing.T, build func(*admission.Limiter) door) error {
	t.Helper()
	w := start(t, admission.Options{Least: 1, Most: 1, Wait: time.Millisecond, Kept: 1}, build)
	end := w.hold(ctx, w.endOfStream)
	_, err := w.client.List(ctx, &grpc_health_v1.HealthListRequest{})
	return errors.Join(err, end())
}

// endOfStream is a stream that is to end well.
func (w *world) endOfStream(ctx context.Context) error {
	if err := w.watch(ctx); err == nil || err.Error() != "EOF" {
		return fmt.Errorf("of a stream: %w", err)
	}
	return nil
}

// repeating: a caller's first attempt and its hedge are in the service, and take both of its places. A retry, another hedge, and a stream's, find none.
func repeating(ctx context.Context, t *testing.T, build func(*admission.Limiter) door) error {
	t.Helper()
	w := start(t, admission.Options{Least: 2, Most: 2, Wait: time.Millisecond}, build)
	numbered := func(n string) func(context.Context) error {
		return func(ctx context.Context) error {
			return check(metadata.AppendToOutgoingContext(ctx, attemptKey, n), w.bare)
		}
	}
	end := w.hold(ctx, numbered("1"), numbered("2"))
	wrong := error(nil)
	if n := w.l.Numbers(); n.InFlight != 2 || n.By[admission.Work].Repeats != 1 {
		wrong = fmt.Errorf("a first attempt and its hedge take %d places: %+v", n.InFlight, n)
	}
	again, cancel := context.WithTimeout(ctx, 2*time.Second) // a twin lets it in, and it stays
	defer cancel()
	for n := range 3 {
		if err := numbered(strconv.Itoa(n + 2))(again); status.Code(err) != codes.Unavailable {
			wrong = errors.Join(wrong, fmt.Errorf("attempt %d: %w", n+2, err))
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
	err = budget.Do(b.Context(), budget.Policy{Base: 1, Most: 1}, func(context.Context) error { tries++; return check(ctx, w.client) })
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
		err := check(ctx, w.client)
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
func waiting(ctx context.Context, t *testing.T, build func(*admission.Limiter) door) error {
	t.Helper()
	w := start(t, admission.Options{Least: 1, Most: 1, Wait: time.Minute}, build)
	end := w.hold(ctx, func(ctx context.Context) error { return check(ctx, w.client) })
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	wrong := wantShed(check(short, w.client))
	if n := w.l.Numbers(); n.By[admission.Work].Queued != 0 {
		wrong = errors.Join(wrong, fmt.Errorf("still in the queue: %+v", n))
	}
	wrong = errors.Join(wrong, end(), check(ctx, w.client))
	if n := w.calls.Load(); n != 2 {
		wrong = errors.Join(wrong, fmt.Errorf("%d calls were served", n))
	}
	return wrong
}

func ours(l *admission.Limiter) door { return New(l, byMethod) }

// TestStories: they hold on real sockets.
func TestStories(t *testing.T) {
	for name, story := range stories() {
		t.Run(name, func(t *testing.T) {
			if err := story(t.Context(), t, ours); err != nil {
				t.Error(err)
			}
		})
	}
}

// twin answers a call by what it makes of our interceptor.
type twin struct {
	*Server
	unary grpc.UnaryServerInterceptor
}

func (d twin) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return d.unary(ctx, req, info, handler)
}

// TestTwins: each is caught by the story that it belongs to.
func TestTwins(t *testing.T) {
	twins := map[string]struct {
		caught string
		unary  func(*Server) grpc.UnaryServerInterceptor
	}{
		"a code without a hint": {"what is shed is refused, with a hint", func(s *Server) grpc.UnaryServerInterceptor {
			return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				reply, err := s.Unary(ctx, req, info, handler)
				if err != nil {
					return nil, status.Error(status.Code(err), "busy")
				}
				return reply, nil
			}
		}},
		"everything is work": {"renewals are let in", func(s *Server) grpc.UnaryServerInterceptor { return New(s.l, nil).Unary }},
		"repeats go around it": {"retries and hedges take places of their own", func(s *Server) grpc.UnaryServerInterceptor {
			return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				if budgethttp.CallersAttempt(ctx) > 1 {
					return handler(ctx, req)
				}
				return s.Unary(ctx, req, info, handler)
			}
		}},
		"it waits for its turn, whoever waits for it": {"nobody waits longer than its caller", func(s *Server) grpc.UnaryServerInterceptor {
			return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				return s.Unary(context.WithoutCancel(ctx), req, info, handler)
			}
		}},
	}
	for name, c := range twins {
		t.Run(name, func(t *testing.T) {
			err := stories()[c.caught](t.Context(), t, func(l *admission.Limiter) door {
				s := New(l, byMethod)
				return twin{s, c.unary(s)}
			})
			if err == nil {
				t.Errorf("%q does not catch it", c.caught)
			}
			t.Log(err)
		})
	}
}

// TestWhatTheLimiterLearns: calls that outlive their callers lower the limit; failures, panics and long streams do not change it; each gives its place back.
func TestWhatTheLimiterLearns(t *testing.T) {
	late := func(ctx context.Context, s *Server) {
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		_, _ = s.Unary(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { <-time.After(time.Second); return struct{}{}, nil })
	}
	for name, c := range map[string]struct {
		call  func(ctx context.Context, s *Server)
		falls bool
	}{
		"late": {late, true},
		"failed": {func(ctx context.Context, s *Server) {
			_, _ = s.Unary(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { <-time.After(time.Second); return nil, errors.New("x") })
		}, false},
		"a panic": {func(ctx context.Context, s *Server) {
			defer func() { _ = recover() }()
			_, _ = s.Unary(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("broken") })
		}, false},
		"long streams": {func(ctx context.Context, s *Server) {
			_ = s.Stream(nil, stream{ctx: ctx}, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { <-time.After(time.Minute); return nil })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := admission.New(admission.Options{})
				if err != nil {
					t.Fatal(err)
				}
				s := New(l, nil)
				for range 100 {
					var wg sync.WaitGroup
					for range 20 {
						wg.Go(func() { c.call(t.Context(), s) })
					}
					wg.Wait()
				}
				if n := l.Numbers(); n.InFlight != 0 || (n.Limit < 20) != c.falls {
					t.Errorf("%+v", n)
				}
			})
		})
	}
}

// stream has a context and nothing else.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// TestNoPriority: a priority that is none is the service's own fault, and nothing is served.
func TestNoPriority(t *testing.T) {
	l, err := admission.New(admission.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := New(l, func(string) admission.Priority { return 0 })
	_, err = s.Unary(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { t.Error("served"); return struct{}{}, nil })
	if status.Code(err) != codes.Internal {
		t.Error(err)
	}
}
