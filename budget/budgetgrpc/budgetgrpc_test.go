package budgetgrpc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// service is a service of well-known types: its Check is a unary call, its Watch a stream.
type service struct {
	grpc_health_v1.UnimplementedHealthServer
	calls atomic.Int32
	work  func(ctx context.Context) error
}

func (s *service) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.calls.Add(1)
	if err := s.work(ctx); err != nil {
		return nil, err
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (s *service) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	s.calls.Add(1)
	if len(metadata.ValueFromIncomingContext(stream.Context(), "one-first")) > 0 {
		if err := stream.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil {
			return err
		}
	}
	return s.work(stream.Context())
}

type world struct {
	*service
	client grpc_health_v1.HealthClient
	server *grpc.Server
	addr   string
}

func start(t *testing.T, limits budgethttp.Limits, work func(ctx context.Context) error, dial ...grpc.DialOption) *world {
	t.Helper()
	door, err := NewServer(limits)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{work: work}
	server := grpc.NewServer(grpc.UnaryInterceptor(door.Unary), grpc.StreamInterceptor(door.Stream))
	grpc_health_v1.RegisterHealthServer(server, s)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), append(append(dial, grpc.WithTransportCredentials(insecure.NewCredentials())), DialOptions()...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &world{s, grpc_health_v1.NewHealthClient(conn), server, listener.Addr().String()}
}

func (w *world) check(ctx context.Context, opts ...grpc.CallOption) error {
	_, err := w.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, opts...)
	return err
}

func (w *world) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return err
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

func anyTime() budgethttp.Limits { return budgethttp.Limits{Most: time.Minute} }

// TestWhatTravels: the handler has what its caller still waits for, at most what the limits allow, before the reserve; and knows the attempt.
func TestWhatTravels(t *testing.T) {
	type seen struct {
		left, reserve time.Duration
		attempt, own  int
	}
	got := make(chan seen, 1)
	w := start(t, budgethttp.Limits{Most: time.Minute, Reserve: 2 * time.Second}, func(ctx context.Context) error {
		b := budget.From(ctx)
		got <- seen{b.RemainingTotal(), b.Reserved(), budgethttp.CallersAttempt(ctx), budget.AttemptNumber(ctx)}
		return nil
	})
	for name, c := range map[string]struct {
		waits, least, most time.Duration // 0: the caller has no deadline
	}{"less than the most": {30 * time.Second, 15 * time.Second, 30 * time.Second}, "capped": {time.Hour, 45 * time.Second, time.Minute}, "absent": {0, 45 * time.Second, time.Minute}} {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), attemptKey, "77"))
		if c.waits > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.waits)
		}
		if err := w.check(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s := <-got; s.left < c.least || s.left > c.most || s.reserve != 2*time.Second || s.attempt != 0 {
			t.Errorf("%s: %+v", name, s)
		}
		cancel()
	}
	b, err := budget.Start(t.Context(), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	for name, call := range map[string]func(context.Context) error{"unary": func(ctx context.Context) error { return w.check(ctx) }, "stream": func(ctx context.Context) error {
		if err := w.watch(ctx); err.Error() != "EOF" {
			return err
		}
		return nil
	}} {
		if err := budget.Do(b.Context(), budget.Policy{}, call); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s := <-got; s.attempt != 1 || s.own != 0 || s.left > 20*time.Second {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestTooLittleIsNotSent: the service sees nothing of a call with less than a millisecond left, or whose caller has gone.
func TestTooLittleIsNotSent(t *testing.T) {
	w := start(t, anyTime(), func(context.Context) error { return nil })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, end := context.WithTimeout(t.Context(), 500*time.Microsecond)
	defer end()
	for code, ctx := range map[codes.Code]context.Context{codes.Canceled: gone, codes.DeadlineExceeded: late} {
		for _, call := range []func(context.Context) error{func(ctx context.Context) error { return w.check(ctx) }, w.watch} {
			if err := call(ctx); budget.ClassOf(err) != budget.NotSent || status.Code(err) != code {
				t.Errorf("%v: %v", code, err)
			}
		}
	}
	if n := w.calls.Load(); n != 0 {
		t.Errorf("%d calls were served", n)
	}
}

// TestExpiredIsRefused: a caller that does not wait any more, or not beyond the reserve, is not served, and told so.
func TestExpiredIsRefused(t *testing.T) {
	w := start(t, budgethttp.Limits{Most: time.Minute, Reserve: 30 * time.Second}, func(context.Context) error { return nil })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, err := range []error{w.check(ctx), w.watch(ctx)} {
		var known *budget.Error
		if !errors.As(err, &known) || known.Class != budget.Refused || !known.NoRetry || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v", err)
		}
	}
	door, err := NewServer(anyTime())
	if err != nil {
		t.Fatal(err)
	}
	over, end := context.WithTimeout(t.Context(), -1)
	defer end()
	_, err = door.Unary(over, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { t.Error("served"); return struct{}{}, nil })
	if status.Code(err) != codes.DeadlineExceeded || w.calls.Load() != 0 {
		t.Errorf("%v, %d served", err, w.calls.Load())
	}
	if _, err := NewServer(budgethttp.Limits{}); !errors.Is(err, budget.ErrInvalid) {
		t.Errorf("no limits: %v", err)
	}
}

func withRetryInfo(code codes.Code, after time.Duration) error {
	st, err := status.New(code, "x").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	if err != nil {
		return err
	}
	return st.Err()
}

// TestAnswers: what a service's own answers prove, of unary calls and of streams; after a message of the answer nothing.
func TestAnswers(t *testing.T) {
	var answer error
	w := start(t, anyTime(), func(context.Context) error { return answer })
	for name, c := range map[string]struct {
		err   error
		class budget.Class
		again bool
		after time.Duration
	}{
		"invalid": {status.Error(codes.InvalidArgument, "x"), budget.Refused, false, 0}, "not found": {status.Error(codes.NotFound, "x"), budget.Refused, false, 0},
		"unavailable": {status.Error(codes.Unavailable, "x"), budget.Unknown, false, 0}, "until later": {withRetryInfo(codes.Unavailable, time.Second), budget.Refused, true, time.Second},
		"exhausted": {status.Error(codes.ResourceExhausted, "x"), budget.Unknown, false, 0}, "exhausted, until later": {withRetryInfo(codes.ResourceExhausted, 2*time.Second), budget.Refused, true, 2 * time.Second},
		"internal": {status.Error(codes.Internal, "x"), budget.Unknown, false, 0}, "anything": {errors.New("x"), budget.Unknown, false, 0}, "the handler's deadline": {status.Error(codes.DeadlineExceeded, "x"), budget.Unknown, false, 0},
	} {
		answer = c.err
		for i, err := range []error{w.check(t.Context()), w.watch(t.Context())} {
			var known *budget.Error
			if !errors.As(err, &known) || known.Class != c.class || known.Again != c.again || known.RetryAfter != c.after || known.Phase != budget.PhaseReading && c.class == budget.Unknown || status.Code(err) != status.Code(c.err) {
				t.Errorf("%s (%d): %+v", name, i, known)
			}
		}
		if err := w.watch(metadata.AppendToOutgoingContext(t.Context(), "one-first", "1")); budget.ClassOf(err) != budget.Unknown {
			t.Errorf("%s, after a message: %v", name, err)
		}
	}
}

// TestWhatTheClientMakesUp: an answer that is too large fails with the code of an overloaded service, and the call was served.
func TestWhatTheClientMakesUp(t *testing.T) {
	w := start(t, anyTime(), func(context.Context) error { return nil })
	err := w.check(t.Context(), grpc.MaxCallRecvMsgSize(1))
	if status.Code(err) != codes.ResourceExhausted || budget.ClassOf(err) != budget.Unknown || w.calls.Load() != 1 {
		t.Errorf("%v, %d served", err, w.calls.Load())
	}
	err = w.check(t.Context(), grpc.MaxCallSendMsgSize(1), grpc.CallContentSubtype("none"))
	if budget.ClassOf(err) != budget.NotSent || w.calls.Load() != 1 {
		t.Errorf("%v, %d served", err, w.calls.Load())
	}
}

// TestBrokenConnection: UNAVAILABLE is not sent where nobody listens, and unknown where the connection broke while the service worked.
func TestBrokenConnection(t *testing.T) {
	began := make(chan struct{}, 2)
	w := start(t, anyTime(), func(ctx context.Context) error { began <- struct{}{}; <-ctx.Done(); return ctx.Err() })
	failed := make(chan error, 2)
	go func() { failed <- w.check(t.Context()) }()
	go func() { failed <- w.watch(t.Context()) }()
	<-began
	<-began
	w.server.Stop()
	for range 2 {
		if err := <-failed; status.Code(err) != codes.Unavailable || budget.ClassOf(err) != budget.Unknown {
			t.Errorf("in the middle: %v", err)
		}
	}
	for _, err := range []error{w.check(t.Context()), w.watch(t.Context())} {
		var known *budget.Error
		if status.Code(err) != codes.Unavailable || !errors.As(err, &known) || known.Class != budget.NotSent || known.Phase != budget.PhaseConnection {
			t.Errorf("nobody listens: %v", err)
		}
	}
	if n := w.calls.Load(); n != 2 {
		t.Errorf("%d calls were served", n)
	}
}

// TestHeadersAlone: a stream is begun by its headers. Nothing else needs to have been sent for the service to have acted.
func TestHeadersAlone(t *testing.T) {
	w := start(t, anyTime(), func(context.Context) error { return nil })
	if err := w.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(w.addr, append(DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/grpc.health.v1.Health/Watch")
	if err != nil {
		t.Fatal(err)
	}
	w.server.Stop()
	var known *budget.Error
	if err := stream.RecvMsg(&grpc_health_v1.HealthCheckResponse{}); !errors.As(err, &known) || known.Class != budget.Unknown || known.Phase != budget.PhaseSending {
		t.Errorf("%v", err)
	}
}

// TestWhatAProxyAnswers: codes that gRPC makes of a proxy's HTTP status are not the service's own answer, and prove nothing.
func TestWhatAProxyAnswers(t *testing.T) {
	for code, want := range map[int]codes.Code{http.StatusForbidden: codes.PermissionDenied, http.StatusUnauthorized: codes.Unauthenticated, http.StatusNotFound: codes.Unimplemented, http.StatusServiceUnavailable: codes.Unavailable} {
		proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		proxy.Config.Protocols = new(http.Protocols)
		proxy.Config.Protocols.SetUnencryptedHTTP2(true)
		proxy.Start()
		conn, err := grpc.NewClient(proxy.Listener.Addr().String(), append(DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if status.Code(err) != want || budget.ClassOf(err) != budget.Unknown {
			t.Errorf("%d: %v", code, err)
		}
		conn.Close()
		proxy.Close()
	}
}

// TestItsOwnRetriesCount: after gRPC has repeated an attempt by its own policy, a refusal of the last one proves nothing of the first.
func TestItsOwnRetriesCount(t *testing.T) {
	var n atomic.Int32
	w := start(t, anyTime(), func(context.Context) error {
		if n.Add(1) == 1 {
			return status.Error(codes.Unavailable, "x")
		}
		return status.Error(codes.FailedPrecondition, "x")
	}, grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`))
	if err := w.check(t.Context()); status.Code(err) != codes.FailedPrecondition || budget.ClassOf(err) != budget.Unknown || n.Load() != 2 {
		t.Errorf("%v, %d attempts", err, n.Load())
	}
}

// layers is a service that calls another one, which fails; each repeats what it may.
func layers(t *testing.T, fail func(context.Context, error) error) (bottom, middle int32, failed error) {
	t.Helper()
	below := start(t, anyTime(), func(context.Context) error { return withRetryInfo(codes.Unavailable, 0) })
	policy := budget.Policy{Try: budget.Try{Timeout: 20 * time.Second, Minimum: time.Millisecond}, Base: 1, Most: 1}
	top := start(t, anyTime(), func(ctx context.Context) error {
		return fail(ctx, budget.Do(ctx, policy, func(ctx context.Context) error { return below.check(ctx) }))
	})
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	err = budget.Do(b.Context(), policy, func(ctx context.Context) error { return top.check(ctx) })
	return below.calls.Load(), top.calls.Load(), err
}

// TestLayersDoNotMultiply: what a service has repeated its caller does not repeat; without the mark three attempts of three make nine.
func TestLayersDoNotMultiply(t *testing.T) {
	if bottom, middle, err := layers(t, Fail); bottom != 3 || middle != 1 || !errors.Is(err, budget.ErrNotRepeated) || strings.Contains(err.Error(), "gave up after 3") {
		t.Errorf("%d at the bottom, %d in the middle, %v", bottom, middle, err)
	}
	unmarked := func(context.Context, error) error { return withRetryInfo(codes.Unavailable, 0) }
	if bottom, middle, err := layers(t, unmarked); bottom != 9 || middle != 3 || !errors.Is(err, budget.ErrAttempts) {
		t.Errorf("unmarked: %d at the bottom, %d in the middle, %v", bottom, middle, err)
	}
}

// TestFailOfNothing: a success is none.
func TestFailOfNothing(t *testing.T) {
	if err := Fail(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
