package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds of a server in front of clients that nobody knows.
const (
	headerBound = 10 * time.Second
	idleBound   = 2 * time.Minute
)

// Serve serves the guard on listener until ctx ends, then lets the requests that are under way end, for drain at most, those
// included that only the service is at work on. It closes the listener. It returns an error matching [ErrLeftBehind] if
// something was still at work then.
func Serve(ctx context.Context, listener net.Listener, g *Guard, maxHeader int, drain time.Duration) error {
	server := &http.Server{Handler: g, ReadHeaderTimeout: headerBound, IdleTimeout: idleBound, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(g.c.Log.Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	g.c.Log.Info("draining", "for_ms", drain.Milliseconds())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := server.Shutdown(ctx)
	var cut int64
	if errors.Is(err, context.DeadlineExceeded) { // clients that were still being answered are cut off
		cut = g.active.Load()
		err = server.Close()
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	left := g.Wait(ctx)
	if left == nil && cut > 0 && g.c.Turns == nil { // with turns the service has answered them since
		left = &leftBehindError{calls: int(cut)}
	}
	g.Close()
	return errors.Join(err, left)
}
