package budgetconnect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

const (
	unaryPath  = "/shop.Orders/Change"
	streamPath = "/shop.Orders/Follow"
)

// world is a service of well-known types on a real socket, and its clients.
type world struct {
	change *connect.Client[emptypb.Empty, emptypb.Empty]
	follow *connect.Client[emptypb.Empty, emptypb.Empty]
	calls  atomic.Int32
	server *httptest.Server
}

func start(t *testing.T, l budgethttp.Limits, work func(ctx context.Context, header http.Header) error, options ...connect.ClientOption) *world {
	t.Helper()
	door, err := NewServer(l)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{}
	within := connect.WithInterceptors(door)
	mux := http.NewServeMux()
	mux.Handle(unaryPath, connect.NewUnaryHandler(unaryPath, func(ctx context.Context, req *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		w.calls.Add(1)
		return connect.NewResponse(&emptypb.Empty{}), work(ctx, req.Header())
	}, within))
	mux.Handle(streamPath, connect.NewServerStreamHandler(streamPath, func(ctx context.Context, req *connect.Request[emptypb.Empty], stream *connect.ServerStream[emptypb.Empty]) error {
		w.calls.Add(1)
		if req.Header().Get("One-First") != "" {
			if err := stream.Send(&emptypb.Empty{}); err != nil {
				return err
			}
		}
		return work(ctx, req.Header())
	}, within))
	w.server = httptest.NewUnstartedServer(mux)
	w.server.EnableHTTP2 = true
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	below := &http.Client{Transport: &budgethttp.Transport{Base: w.server.Client().Transport}}
	options = append([]connect.ClientOption{connect.WithInterceptors(NewClient())}, options...)
	w.change = connect.NewClient[emptypb.Empty, emptypb.Empty](below, w.server.URL+unaryPath, options...)
	w.follow = connect.NewClient[emptypb.Empty, emptypb.Empty](below, w.server.URL+streamPath, options...)
	return w
}

func (w *world) unary(ctx context.Context) error {
	_, err := w.change.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))
	return err
}

func (w *world) stream(ctx context.Context, header ...string) error {
	req := connect.NewRequest(&emptypb.Empty{})
	for _, name := range header {
		req.Header().Set(name, "1")
	}
	stream, err := w.follow.CallServerStream(ctx, req)
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
	}
	return stream.Err()
}

func protocols() map[string][]connect.ClientOption {
	return map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}}
}

func anyTime() budgethttp.Limits { return budgethttp.Limits{Most: time.Minute} }

// TestWhatTravels: the handler has what its caller still waits for, at most what the limits allow, before the reserve; and knows the attempt.
func TestWhatTravels(t *testing.T) {
	type seen struct {
		left, reserve time.Duration
		attempt, own  int
	}
	for protocol, options := range protocols() {
		got := make(chan seen, 1)
		w := start(t, budgethttp.Limits{Most: time.Minute, Reserve: 2 * time.Second}, func(ctx context.Context, _ http.Header) error {
			b := budget.From(ctx)
			got <- seen{b.RemainingTotal(), b.Reserved(), budgethttp.CallersAttempt(ctx), budget.AttemptNumber(ctx)}
			return nil
		}, options...)
		calls := map[string]func(context.Context) error{"unary": w.unary, "stream": func(ctx context.Context) error { return w.stream(ctx) }}
		for kind, call := range calls {
			for name, c := range map[string]struct{ waits, least, most time.Duration }{
				"less than the most": {30 * time.Second, 15 * time.Second, 30 * time.Second}, "capped": {time.Hour, 45 * time.Second, time.Minute}, "absent": {0, 45 * time.Second, time.Minute},
			} {
				ctx, cancel := context.WithCancel(t.Context())
				if c.waits > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.waits)
				}
				if err := call(ctx); err != nil {
					t.Errorf("%s, %s, %s: %v", protocol, kind, name, err)
				} else if s := <-got; s.left < c.least || s.left > c.most || s.reserve != 2*time.Second || s.attempt != 0 {
					t.Errorf("%s, %s, %s: %+v", protocol, kind, name, s)
				}
				cancel()
			}
			b, err := budget.Start(t.Context(), 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if err := budget.Do(b.Context(), budget.Policy{}, call); err != nil {
				t.Errorf("%s, %s: %v", protocol, kind, err)
			} else if s := <-got; s.attempt != 1 || s.own != 0 || s.left > 20*time.Second {
				t.Errorf("%s, %s: %+v", protocol, kind, s)
			}
			b.End()
		}
	}
}

// brief has always so little left, however slow the machine is.
type brief struct{ context.Context }

// Deadline is part of context.Context.
func (brief) Deadline() (time.Time, bool) { return time.Now().Add(900 * time.Microsecond), true }

// bareHandler is a handler without our interceptor: it notes the timeout that it was sent, and whether its context has a limit.
func bareHandler(t *testing.T) (url string, client *http.Client, got chan [2]string) {
	t.Helper()
	got = make(chan [2]string, 1)
	mux := http.NewServeMux()
	mux.Handle(unaryPath, connect.NewUnaryHandler(unaryPath, func(ctx context.Context, req *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		_, limited := ctx.Deadline()
		got <- [2]string{req.Header().Get("Connect-Timeout-Ms") + req.Header().Get("Grpc-Timeout"), fmt.Sprint(limited)}
		return connect.NewResponse(&emptypb.Empty{}), nil
	}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + unaryPath, server.Client(), got
}

// TestUnderAMillisecond: Connect's own client rounds less than a millisecond up in its own protocol and sends the call, and a timeout of more than ten digits not at all; ours does not send
// the first call.
func TestUnderAMillisecond(t *testing.T) {
	url, below, got := bareHandler(t)
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](below, url)
	if _, err := client.CallUnary(brief{t.Context()}, connect.NewRequest(&emptypb.Empty{})); err != nil && connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("bare: %v", err)
	} else if seen := <-got; seen != [2]string{"1", "true"} {
		t.Errorf("bare: %v; then the package comment is wrong", seen)
	}
	web := connect.NewClient[emptypb.Empty, emptypb.Empty](below, url, connect.WithGRPCWeb())
	if _, err := web.CallUnary(brief{t.Context()}, connect.NewRequest(&emptypb.Empty{})); err != nil && connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("bare, gRPC-Web: %v", err)
	} else if seen := <-got; !strings.HasSuffix(seen[0], "n") || len(seen[0]) > len("900000n") || seen[1] != "true" {
		t.Errorf("bare, gRPC-Web: %v; then the package comment is wrong", seen)
	}
	years, cancel := context.WithTimeout(t.Context(), 200*24*time.Hour)
	defer cancel()
	if _, err := client.CallUnary(years, connect.NewRequest(&emptypb.Empty{})); err != nil {
		t.Errorf("bare, eleven digits: %v", err)
	} else if seen := <-got; seen != [2]string{"", "false"} {
		t.Errorf("bare, eleven digits: %v; then the package comment is wrong", seen)
	}
	client = connect.NewClient[emptypb.Empty, emptypb.Empty](below, url, connect.WithInterceptors(NewClient()))
	if _, err := client.CallUnary(brief{t.Context()}, connect.NewRequest(&emptypb.Empty{})); !errors.Is(err, budget.ErrNoTime) || budget.ClassOf(err) != budget.NotSent || len(got) != 0 {
		t.Errorf("ours: %v, %d served", err, len(got))
	}
}

// TestNoTimeoutIsNoLimit: a handler that is sent none, or an empty one, has no limit at all; behind our interceptor it has one.
func TestNoTimeoutIsNoLimit(t *testing.T) {
	url, client, got := bareHandler(t)
	left := make(chan time.Duration, 1)
	w := start(t, anyTime(), func(ctx context.Context, _ http.Header) error { left <- budget.From(ctx).RemainingTotal(); return nil })
	for name, header := range map[string]http.Header{"absent": {"Content-Type": {"application/proto"}}, "empty": {"Content-Type": {"application/proto"}, "Connect-Timeout-Ms": {""}}} {
		post(t, client, url, header)
		if seen := <-got; seen != [2]string{"", "false"} {
			t.Errorf("%s, bare: %v", name, seen)
		}
		post(t, w.server.Client(), w.server.URL+unaryPath, header)
		if d := <-left; d > time.Minute || d < 45*time.Second {
			t.Errorf("%s, ours: %v left", name, d)
		}
	}
}

func post(t *testing.T, client *http.Client, url string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// TestTooLittleIsNotSent: the service sees nothing of a call with less than a millisecond left, or whose caller has gone.
func TestTooLittleIsNotSent(t *testing.T) {
	for protocol, options := range protocols() {
		w := start(t, anyTime(), func(context.Context, http.Header) error { return nil }, options...)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for code, ctx := range map[connect.Code]context.Context{connect.CodeCanceled: gone, connect.CodeDeadlineExceeded: brief{t.Context()}} {
			for _, err := range []error{w.unary(ctx), w.stream(ctx)} {
				if budget.ClassOf(err) != budget.NotSent || connect.CodeOf(err) != code {
					t.Errorf("%s, %v: %v", protocol, code, err)
				}
			}
		}
		if n := w.calls.Load(); n != 0 {
			t.Errorf("%s: %d calls were served", protocol, n)
		}
	}
}

// TestTimeoutsOnTheWire: what other clients may send as Connect-Timeout-Ms. Absent is the most, expired is refused, garbage is Connect's own refusal; none is taken for another.
func TestTimeoutsOnTheWire(t *testing.T) {
	left := make(chan time.Duration, 1)
	w := start(t, budgethttp.Limits{Most: time.Minute, Reserve: time.Second}, func(ctx context.Context, _ http.Header) error { left <- budget.From(ctx).RemainingTotal(); return nil })
	for name, c := range map[string]struct {
		timeouts []string
		code     int
		least    time.Duration
	}{
		"absent": {nil, 200, 45 * time.Second}, "positive": {[]string{"30000"}, 200, 15 * time.Second}, "huge": {[]string{"9999999999"}, 200, 45 * time.Second},
		"zero": {[]string{"0"}, 504, 0}, "no more than the reserve": {[]string{"1000"}, 504, 0}, "garbage": {[]string{"soon"}, 400, 0}, "too long": {[]string{"99999999999"}, 400, 0},
		"negative": {[]string{"-5"}, 400, 0},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.server.URL+unaryPath, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/proto"}}
		if c.timeouts != nil {
			req.Header["Connect-Timeout-Ms"] = c.timeouts
		}
		resp, err := w.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		select {
		case d := <-left:
			if resp.StatusCode != c.code || d < c.least || d > time.Minute {
				t.Errorf("%s: served with %v, %d", name, d, resp.StatusCode)
			}
		default:
			if resp.StatusCode != c.code {
				t.Errorf("%s: %d, %s", name, resp.StatusCode, text)
			}
		}
	}
}

// TestExpiredIsRefused: a caller whose time does not hold the reserve is not served, and told so.
func TestExpiredIsRefused(t *testing.T) {
	for protocol, options := range protocols() {
		w := start(t, budgethttp.Limits{Most: time.Minute, Reserve: 30 * time.Second}, func(context.Context, http.Header) error { return nil }, options...)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		for _, err := range []error{w.unary(ctx), w.stream(ctx)} {
			var known *budget.Error
			if !errors.As(err, &known) || known.Class != budget.Refused || !known.NoRetry || connect.CodeOf(err) != connect.CodeDeadlineExceeded || w.calls.Load() != 0 {
				t.Errorf("%s: %v", protocol, err)
			}
		}
		cancel()
	}
	if _, err := NewServer(budgethttp.Limits{}); !errors.Is(err, budget.ErrInvalid) {
		t.Errorf("no limits: %v", err)
	}
}

func withRetryInfo(code connect.Code, after time.Duration) error {
	e := connect.NewError(code, errors.New("x"))
	d, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	if err != nil {
		return err
	}
	e.AddDetail(d)
	return e
}

// TestAnswers: what a service's own answers prove, of unary calls and of streams; after a message of the answer nothing.
func TestAnswers(t *testing.T) {
	bare := func(code connect.Code) error { return connect.NewError(code, errors.New("x")) }
	for protocol, options := range protocols() {
		var answer error
		w := start(t, anyTime(), func(context.Context, http.Header) error { return answer }, options...)
		for name, c := range map[string]struct {
			err   error
			class budget.Class
			again bool
			after time.Duration
		}{
			"invalid": {bare(connect.CodeInvalidArgument), budget.Refused, false, 0}, "unavailable": {bare(connect.CodeUnavailable), budget.Unknown, false, 0},
			"until later": {withRetryInfo(connect.CodeUnavailable, time.Second), budget.Refused, true, time.Second}, "exhausted": {bare(connect.CodeResourceExhausted), budget.Unknown, false, 0},
			"internal": {bare(connect.CodeInternal), budget.Unknown, false, 0}, "anything": {errors.New("x"), budget.Unknown, false, 0}, "the handler's deadline": {bare(connect.CodeDeadlineExceeded), budget.Unknown, false, 0},
		} {
			answer = c.err
			for i, err := range []error{w.unary(t.Context()), w.stream(t.Context())} {
				var known *budget.Error
				if !errors.As(err, &known) || known.Class != c.class || known.Again != c.again || known.RetryAfter != c.after || connect.CodeOf(err) != connect.CodeOf(c.err) {
					t.Errorf("%s, %s (%d): %+v", protocol, name, i, err)
				}
			}
			if err := w.stream(t.Context(), "One-First"); budget.ClassOf(err) != budget.Unknown {
				t.Errorf("%s, %s, after a message: %v", protocol, name, err)
			}
		}
	}
}

// TestWhatTheClientMakesUp: an answer that is too large, and one of a proxy, have the codes of refusals, and prove nothing.
func TestWhatTheClientMakesUp(t *testing.T) {
	w := start(t, anyTime(), func(context.Context, http.Header) error { return withRetryInfo(connect.CodeUnavailable, 0) }, connect.WithReadMaxBytes(1))
	if err := w.unary(t.Context()); err == nil || budget.ClassOf(err) != budget.Unknown || w.calls.Load() != 1 {
		t.Errorf("%v, %d served", err, w.calls.Load())
	}
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusNotFound, http.StatusBadGateway} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		client := connect.NewClient[emptypb.Empty, emptypb.Empty](proxy.Client(), proxy.URL+unaryPath, connect.WithInterceptors(NewClient()))
		if _, err := client.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{})); budget.ClassOf(err) != budget.Unknown {
			t.Errorf("%d: %v", code, err)
		}
		proxy.Close()
	}
}

// TestBrokenConnection: unavailable is not sent where nobody listens, and unknown where the connection broke while the service worked.
func TestBrokenConnection(t *testing.T) {
	for protocol, options := range protocols() {
		began := make(chan struct{}, 2)
		w := start(t, anyTime(), func(ctx context.Context, _ http.Header) error { began <- struct{}{}; <-ctx.Done(); return ctx.Err() }, options...)
		failed := make(chan error, 2)
		go func() { failed <- w.unary(t.Context()) }()
		go func() { failed <- w.stream(t.Context()) }()
		<-began
		<-began
		w.server.CloseClientConnections()
		for range 2 {
			if err := <-failed; budget.ClassOf(err) != budget.Unknown {
				t.Errorf("%s, in the middle: %v", protocol, err)
			}
		}
		w.server.Close()
		for _, err := range []error{w.unary(t.Context()), w.stream(t.Context())} {
			var known *budget.Error
			if !errors.As(err, &known) || known.Class != budget.NotSent || known.Phase != budget.PhaseConnect || connect.CodeOf(err) != connect.CodeUnavailable {
				t.Errorf("%s, nobody listens: %v", protocol, err)
			}
		}
	}
}

// layers is a service that calls another one, which fails; each repeats what it may.
func layers(t *testing.T, fail func(error) error, options ...connect.ClientOption) (bottom, middle int32, failed error) {
	t.Helper()
	below := start(t, anyTime(), func(context.Context, http.Header) error { return withRetryInfo(connect.CodeUnavailable, 0) }, options...)
	policy := budget.Policy{Try: budget.Try{Timeout: 20 * time.Second, Minimum: time.Millisecond}, Base: 1, Most: 1}
	top := start(t, anyTime(), func(ctx context.Context, _ http.Header) error { return fail(budget.Do(ctx, policy, below.unary)) }, options...)
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	err = budget.Do(b.Context(), policy, top.unary)
	return below.calls.Load(), top.calls.Load(), err
}

// TestLayersDoNotMultiply: what a service has repeated its caller does not repeat; without the mark three attempts of three make nine.
func TestLayersDoNotMultiply(t *testing.T) {
	for protocol, options := range protocols() {
		t.Run(fmt.Sprint(protocol), func(t *testing.T) {
			if bottom, middle, err := layers(t, Fail, options...); bottom != 3 || middle != 1 || !errors.Is(err, budget.ErrNotRepeated) {
				t.Errorf("%d at the bottom, %d in the middle, %v", bottom, middle, err)
			}
			unmarked := func(error) error { return withRetryInfo(connect.CodeUnavailable, 0) }
			if bottom, middle, err := layers(t, unmarked, options...); bottom != 9 || middle != 3 || !errors.Is(err, budget.ErrAttempts) {
				t.Errorf("unmarked: %d at the bottom, %d in the middle, %v", bottom, middle, err)
			}
		})
	}
}
