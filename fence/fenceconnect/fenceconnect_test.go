package fenceconnect

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
)

const (
	unaryPath  = "/shop.Orders/Change"
	streamPath = "/shop.Orders/Follow"
)

func claimed(token fence.Token) fence.Claim {
	return fence.Claim{Authority: fence.ID{1}, Name: "orders/7", Acquisition: fence.ID{2}, Token: token}
}

// world is a service of well-known types on a real socket, and its clients.
type world struct {
	change *connect.Client[wrapperspb.StringValue, emptypb.Empty]
	follow *connect.Client[wrapperspb.StringValue, emptypb.Empty]
	turns  *fencehttp.Serializer

	mu      sync.Mutex
	served  []fence.Token
	began   chan fence.Token
	proceed chan struct{} // under token 7 a call waits for it
}

func (w *world) work(ctx context.Context) {
	claim, _ := fencehttp.ClaimFrom(ctx)
	w.began <- claim.Token
	if claim.Token == 7 && w.proceed != nil {
		select {
		case <-w.proceed:
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.served = append(w.served, claim.Token)
}

func (w *world) tokens() []fence.Token {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]fence.Token{}, w.served...)
}

func resource(_ context.Context, _ connect.Spec, header http.Header, message any) (string, bool, error) {
	req, ok := message.(*wrapperspb.StringValue)
	switch {
	case !ok:
		return header.Get("Resource"), true, nil
	case req.GetValue() == "nowhere":
		return "", true, errors.New("the table is at db.internal")
	}
	return req.GetValue(), true, nil
}

func start(t *testing.T, change func(*Options), wrap func(connect.Interceptor) connect.Interceptor, protocol ...connect.ClientOption) *world {
	t.Helper()
	marks, err := fencehttp.NewMarks(10)
	if err != nil {
		t.Fatal(err)
	}
	turns, err := fencehttp.NewSerializer(fencehttp.SerializeOptions{Wait: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{GateOptions: fencehttp.GateOptions{Check: marks, Turns: turns}, Resource: resource}
	change(&o)
	door, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{turns: turns, began: make(chan fence.Token, 100)}
	guarded := connect.WithInterceptors(wrap(door))
	mux := http.NewServeMux()
	mux.Handle(unaryPath, connect.NewUnaryHandler(unaryPath,
		func(ctx context.Context, _ *connect.Request[wrapperspb.StringValue]) (*connect.Response[emptypb.Empty], error) {
			w.work(ctx)
			return connect.NewResponse(&emptypb.Empty{}), nil
		}, guarded))
	mux.Handle(streamPath, connect.NewServerStreamHandler(streamPath,
		func(ctx context.Context, _ *connect.Request[wrapperspb.StringValue], stream *connect.ServerStream[emptypb.Empty]) error {
			w.work(ctx)
			return stream.Send(&emptypb.Empty{})
		}, guarded))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	options := append([]connect.ClientOption{connect.WithInterceptors(NewClient(nil))}, protocol...)
	w.change = connect.NewClient[wrapperspb.StringValue, emptypb.Empty](server.Client(), server.URL+unaryPath, options...)
	w.follow = connect.NewClient[wrapperspb.StringValue, emptypb.Empty](server.Client(), server.URL+streamPath, options...)
	return w
}

func asIs(i connect.Interceptor) connect.Interceptor { return i }

func (w *world) post(ctx context.Context, service string, claims ...string) error {
	req := connect.NewRequest(wrapperspb.String(service))
	for _, claim := range claims {
		req.Header().Add(fencehttp.ClaimHeader, claim)
	}
	_, err := w.change.CallUnary(ctx, req)
	return err
}

func (w *world) under(ctx context.Context, token fence.Token) error {
	return w.post(fencehttp.WithClaim(ctx, claimed(token)), "orders/7")
}

func (w *world) stream(ctx context.Context, claim fence.Claim) (err error) {
	req := connect.NewRequest(wrapperspb.String(""))
	req.Header().Set("Resource", "orders/7")
	stream, err := w.follow.CallServerStream(fencehttp.WithClaim(ctx, claim), req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	if !stream.Receive() {
		return stream.Err()
	}
	return nil
}

// stale: a lower token is refused, in a unary call and in a stream, by an error that tells both and is Connect's too.
func stale(t *testing.T, wrap func(connect.Interceptor) connect.Interceptor, protocol ...connect.ClientOption) error {
	t.Helper()
	w := start(t, func(*Options) {}, wrap, protocol...)
	if err := errors.Join(w.under(t.Context(), 8), w.stream(t.Context(), claimed(8))); err != nil {
		return err
	}
	for _, err := range []error{w.under(t.Context(), 6), w.stream(t.Context(), claimed(6))} {
		var refused *fence.RefusedError
		var failed *connect.Error
		if !errors.As(err, &refused) || refused.Newer != 8 || refused.Claim != claimed(6) || !errors.As(err, &failed) || failed.Code() != connect.CodeFailedPrecondition {
			return errors.Join(errors.New("not refused as it should be"), err)
		}
		detail, bad := failed.Details()[0].Value()
		info, ok := detail.(*errdetails.ErrorInfo)
		if bad != nil || !ok || info.GetReason() != "CLAIM_REFUSED" || info.GetMetadata()["seen"] != "6" || info.GetMetadata()["newer"] != "8" {
			return errors.Join(errors.New("details"), err, bad)
		}
	}
	if got := w.tokens(); len(got) != 2 {
		return errors.New("a refused call was served")
	}
	return nil
}

func TestStaleIsRefused(t *testing.T) {
	for name, protocol := range map[string][]connect.ClientOption{
		"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
	} {
		t.Run(name, func(t *testing.T) {
			if err := stale(t, asIs, protocol...); err != nil {
				t.Error(err)
			}
		})
	}
}

// hasty serves before it checks.
type hasty struct{ connect.Interceptor }

func (h hasty) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		reply, err := next(ctx, req)
		if err != nil {
			return nil, err
		}
		return h.Interceptor.WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return reply, nil })(ctx, req)
	}
}

// TestServedBeforeCheckedIsCaught: an interceptor that serves first does not pass [TestStaleIsRefused].
func TestServedBeforeCheckedIsCaught(t *testing.T) {
	if err := stale(t, func(sound connect.Interceptor) connect.Interceptor { return hasty{sound} }); err == nil {
		t.Error("an interceptor that serves before it checks passes")
	}
}

// TestRefusals: every other kind, by its code.
func TestRefusals(t *testing.T) {
	w := start(t, func(*Options) {}, asIs)
	claim := fencehttp.WithClaim(t.Context(), claimed(8))
	for name, c := range map[string]struct {
		err  error
		kind error
		code connect.Code
	}{
		"none":             {w.post(t.Context(), "orders/7"), fencehttp.ErrMissing, connect.CodeFailedPrecondition},
		"two":              {w.post(t.Context(), "orders/7", claimed(8).String(), claimed(8).String()), fence.ErrInvalid, connect.CodeInvalidArgument},
		"text":             {w.post(t.Context(), "orders/7", "let me in"), fence.ErrInvalid, connect.CodeInvalidArgument},
		"another name":     {w.post(claim, "orders/8"), fence.ErrForeign, connect.CodeFailedPrecondition},
		"no resource":      {w.post(claim, ""), fencehttp.ErrResource, connect.CodeInvalidArgument},
		"unclear resource": {w.post(claim, "nowhere"), fencehttp.ErrResource, connect.CodeInvalidArgument},
	} {
		if !errors.Is(c.err, c.kind) || connect.CodeOf(c.err) != c.code || strings.Contains(c.err.Error(), "internal") {
			t.Errorf("%s: %v (%v)", name, c.err, connect.CodeOf(c.err))
		}
	}
	for _, err := range []error{w.post(fencehttp.WithClaim(t.Context(), fence.Claim{}), "orders/7"), w.stream(t.Context(), fence.Claim{})} {
		if !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("a claim that is none was sent: %v", err)
		}
	}
	if got := w.tokens(); len(got) > 0 {
		t.Errorf("served: %v", got)
	}
}

// TestUncheckedIsUnavailable: what the authority does not answer for is not let in, and why is not told.
func TestUncheckedIsUnavailable(t *testing.T) {
	w := start(t, func(o *Options) {
		o.Check = fencehttp.Strict(func(context.Context, fence.Claim) error { return errors.New("dial db.internal: refused") })
	}, asIs)
	err := w.under(t.Context(), 8)
	if !errors.Is(err, fencehttp.ErrUnavailable) || connect.CodeOf(err) != connect.CodeUnavailable || strings.Contains(err.Error(), "internal") || len(w.tokens()) > 0 {
		t.Errorf("%v", err)
	}
}

// newerWaits: a newer owner's call waits for the one at work; without turns it overtakes it.
func newerWaits(t *testing.T, turns bool) (order []fence.Token) {
	t.Helper()
	w := start(t, func(o *Options) {
		if !turns {
			o.Turns = nil
		}
	}, asIs)
	w.proceed = make(chan struct{})
	older, newer := make(chan error, 1), make(chan error, 1)
	go func() { older <- w.under(t.Context(), 7) }()
	<-w.began
	go func() { newer <- w.under(t.Context(), 8) }()
	if turns {
		for _, waiting := w.turns.Busy(); waiting == 0; _, waiting = w.turns.Busy() {
			<-time.After(time.Millisecond)
		}
	} else if err := <-newer; err != nil {
		t.Error(err)
	}
	close(w.proceed)
	if err := <-older; err != nil {
		t.Error(err)
	}
	if turns {
		if err := <-newer; err != nil {
			t.Error(err)
		}
	}
	return w.tokens()
}

func TestNewerWaitsForItsTurn(t *testing.T) {
	if got := newerWaits(t, true); len(got) != 2 || got[0] != 7 || got[1] != 8 {
		t.Errorf("with turns: %v", got)
	}
	if got := newerWaits(t, false); len(got) != 2 || got[0] != 8 || got[1] != 7 {
		t.Errorf("without: %v", got)
	}
}

func TestOptionsMustFit(t *testing.T) {
	for _, o := range []Options{{}, {Resource: resource}} {
		if _, err := NewServer(o); !errors.Is(err, fencehttp.ErrOption) {
			t.Errorf("%v", err)
		}
	}
}
