package fencegrpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
)

func claimed(token fence.Token) fence.Claim {
	return fence.Claim{Authority: fence.ID{1}, Name: "orders/7", Acquisition: fence.ID{2}, Token: token}
}

// service is a service of well-known types: its Check is the change that is protected, its Watch a stream.
type service struct {
	grpc_health_v1.UnimplementedHealthServer

	mu      sync.Mutex
	served  []fence.Token
	began   chan fence.Token
	proceed chan struct{} // under token 7 a call waits for it
}

func (s *service) work(ctx context.Context) {
	claim, _ := fencehttp.ClaimFrom(ctx)
	s.began <- claim.Token
	if claim.Token == 7 && s.proceed != nil {
		select {
		case <-s.proceed:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = append(s.served, claim.Token)
}

func (s *service) tokens() []fence.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]fence.Token{}, s.served...)
}

// Check is a unary call.
func (s *service) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.work(ctx)
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// Watch is a stream.
func (s *service) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	s.work(stream.Context())
	return stream.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING})
}

// resource finds it in the message, or, for a stream, in the metadata. Lists are not protected.
func resource(ctx context.Context, _ string, message any) (string, bool, error) {
	if req, ok := message.(*grpc_health_v1.HealthCheckRequest); ok {
		if req.GetService() == "nowhere" {
			return "", true, errors.New("the table is at db.internal")
		}
		return req.GetService(), true, nil
	}
	return strings.Join(metadata.ValueFromIncomingContext(ctx, "resource"), ","), true, nil
}

type world struct {
	*service
	grpc_health_v1.HealthClient
	turns *fencehttp.Serializer
}

func start(t *testing.T, change func(*Options), wrap func(grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor) *world {
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
	s := &service{began: make(chan fence.Token, 100)}
	server := grpc.NewServer(grpc.UnaryInterceptor(wrap(door.Unary)), grpc.StreamInterceptor(door.Stream))
	grpc_health_v1.RegisterHealthServer(server, s)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	client := new(Client)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(client.Unary), grpc.WithStreamInterceptor(client.Stream))
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
	return &world{service: s, HealthClient: grpc_health_v1.NewHealthClient(conn), turns: turns}
}

func asIs(i grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor { return i }

func (w *world) change(ctx context.Context, token fence.Token) error {
	_, err := w.HealthClient.Check(fencehttp.WithClaim(ctx, claimed(token)), &grpc_health_v1.HealthCheckRequest{Service: "orders/7"})
	return err
}

func (w *world) watch(ctx context.Context, token fence.Token) error {
	stream, err := w.HealthClient.Watch(metadata.AppendToOutgoingContext(fencehttp.WithClaim(ctx, claimed(token)), "resource", "orders/7"),
		&grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// stale: a lower token is refused, in a unary call and in a stream, by an error that tells both and is a status too.
func stale(t *testing.T, wrap func(grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor) error {
	t.Helper()
	w := start(t, func(*Options) {}, wrap)
	if err := errors.Join(w.change(t.Context(), 8), w.watch(t.Context(), 8)); err != nil {
		return err
	}
	for _, err := range []error{w.change(t.Context(), 6), w.watch(t.Context(), 6)} {
		var refused *fence.RefusedError
		st, ok := status.FromError(err)
		if !errors.As(err, &refused) || refused.Newer != 8 || refused.Claim != claimed(6) || !ok || st.Code() != codes.FailedPrecondition {
			return errors.Join(errors.New("not refused as it should be"), err)
		}
		info, ok := st.Details()[0].(*errdetails.ErrorInfo)
		if !ok || info.GetReason() != "CLAIM_REFUSED" || info.GetMetadata()["seen"] != "6" || info.GetMetadata()["newer"] != "8" {
			return errors.Join(errors.New("details"), err)
		}
	}
	if got := w.tokens(); len(got) != 2 {
		return errors.New("a refused call was served")
	}
	return nil
}

func TestStaleIsRefused(t *testing.T) {
	if err := stale(t, asIs); err != nil {
		t.Error(err)
	}
}

// TestServedBeforeCheckedIsCaught: an interceptor that serves first does not pass [TestStaleIsRefused].
func TestServedBeforeCheckedIsCaught(t *testing.T) {
	err := stale(t, func(sound grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			reply, err := handler(ctx, req)
			if err != nil {
				return nil, err
			}
			return sound(ctx, req, info, func(context.Context, any) (any, error) { return reply, nil })
		}
	})
	if err == nil {
		t.Error("an interceptor that serves before it checks passes")
	}
}

// TestRefusals: every other kind, by its status.
func TestRefusals(t *testing.T) {
	w := start(t, func(*Options) {}, asIs)
	check := func(ctx context.Context, service string) error {
		_, err := w.HealthClient.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
		return err
	}
	claim := fencehttp.WithClaim(t.Context(), claimed(8))
	for name, c := range map[string]struct {
		err  error
		kind error
		code codes.Code
	}{
		"none":             {check(t.Context(), "orders/7"), fencehttp.ErrMissing, codes.FailedPrecondition},
		"two":              {check(metadata.AppendToOutgoingContext(t.Context(), ClaimKey, claimed(8).String(), ClaimKey, claimed(8).String()), "orders/7"), fence.ErrInvalid, codes.InvalidArgument},
		"text":             {check(metadata.AppendToOutgoingContext(t.Context(), ClaimKey, "let me in"), "orders/7"), fence.ErrInvalid, codes.InvalidArgument},
		"another name":     {check(claim, "orders/8"), fence.ErrForeign, codes.FailedPrecondition},
		"no resource":      {check(claim, ""), fencehttp.ErrResource, codes.InvalidArgument},
		"unclear resource": {check(claim, "nowhere"), fencehttp.ErrResource, codes.InvalidArgument},
	} {
		if !errors.Is(c.err, c.kind) || status.Code(c.err) != c.code || strings.Contains(c.err.Error(), "internal") {
			t.Errorf("%s: %v (%v)", name, c.err, status.Code(c.err))
		}
	}
	bad := fencehttp.WithClaim(t.Context(), fence.Claim{})
	if err := check(bad, "orders/7"); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a claim that is none was sent: %v", err)
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
	err := w.change(t.Context(), 8)
	if !errors.Is(err, fencehttp.ErrUnavailable) || status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "internal") || len(w.tokens()) > 0 {
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
	go func() { older <- w.change(t.Context(), 7) }()
	<-w.began
	go func() { newer <- w.change(t.Context(), 8) }()
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
