package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/server"
)

// Bounds of a connection, before anybody is asked for anything.
const (
	serveHeaderBound = 5 * time.Second
	serveIdleBound   = 2 * time.Minute
	serveHeaderBytes = 32 << 10
	serveStreams     = 250 // calls at a time on one connection of HTTP/2
)

type serveFlags struct {
	listen       string
	drain, most  time.Duration
	atOnce, wait int
	asJSON       bool
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "serve a store to processes on this machine that do not open it themselves",
		Long: `Serves leases, marks, holds and operations of a store over HTTP: one port speaks Connect, gRPC, gRPC-Web and JSON, so that curl,
tenure --store http://... and clients in any language can ask. Several servers may serve one PostgreSQL database.

It knows no users yet, so it listens on the loopback alone, and refuses to start elsewhere: whoever reaches it may do
everything. A server keeps no state of its own. One that is killed loses nothing that was answered; a reply that was lost is
healed by repeating the call with its id. One that was stopped and goes on can do nothing that the store would not refuse.

Calls that come when more are under way than the store keeps up with wait a little, renewals first, and are then answered
"unavailable" with a time to come back. SIGTERM or Ctrl-C: it takes no more calls, and ends when those under way have been
answered, at the latest after --drain. Logs go to standard error, with --json as JSON.`,
		Example: `  tenure serve
  tenure serve --store postgres://app@127.0.0.1/shop --listen 127.0.0.1:7420
  tenure lease ls --store http://127.0.0.1:7420
  curl -H 'Content-Type: application/json' -d '{"name": "nightly-report"}' http://127.0.0.1:7420/tenure.v1.LeaseService/GetLease`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7420", "`ADDRESS` to listen on; port 0 takes a free one, which is logged")
	flags.DurationVar(&f.drain, "drain", 30*time.Second, "how long calls under way may take after SIGTERM")
	flags.DurationVar(&f.most, "most", time.Minute, "the longest that a call may take")
	flags.IntVar(&f.atOnce, "at-once", 256, "how many calls may be at work at a time, at most")
	flags.IntVar(&f.wait, "waits", 1024, "how many calls may wait for the end of an operation, or hold a stream, at a time")
	flags.BoolVar(&f.asJSON, "json", false, "log JSON")
	return cmd
}

// handler serves what the store keeps.
func (a *app) handler(ctx context.Context, s store, l location, f serveFlags, kept *marks, draining <-chan struct{}) (http.Handler, error) {
	authority, err := a.readAuthority(ctx)
	if err != nil {
		return nil, err
	}
	if authority.Authority.IsZero() {
		return nil, &storeError{fmt.Errorf("%s does not say which authority it is: nothing was served", l.shown)}
	}
	held, err := holdsOf(s)
	if err != nil {
		return nil, err
	}
	ops, err := operationsOf(s)
	if err != nil {
		return nil, err
	}
	h, err := server.Handler(server.Options{
		Authority: authority.Authority, Leases: s, Marks: kept, Holds: held, Operations: ops, Limits: server.Limits{Most: f.most, AtOnce: f.atOnce, Waits: f.wait}, Draining: draining,
	})
	if errors.Is(err, server.ErrInvalid) {
		return nil, usagef("--most, --at-once, --waits: %v", err)
	}
	return h, err
}

// serve serves until a signal.
func (a *app) serve(ctx context.Context, f serveFlags) error {
	if f.drain <= 0 {
		return usagef("--drain must be positive")
	}
	log := a.logger(f.asJSON)
	l, err := a.env.locate(a.storeFlag)
	if err != nil {
		return err
	}
	if err := l.besideTheStore("serve"); err != nil {
		return err
	}
	s, l, err := a.open(ctx, openOptions{})
	if err != nil {
		return err
	}
	defer a.close(ctx, s)
	draining := make(chan struct{})
	kept, err := openMarks(ctx, l, log)
	if err != nil {
		return err
	}
	defer func() {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		if err := kept.close(bound); err != nil {
			a.say("closing the marks: %v; nothing that was answered is lost", err)
		}
	}()
	h, err := a.handler(ctx, s, l, f, kept, draining)
	if err != nil {
		return err
	}
	listener, err := loopback(ctx, f.listen)
	if err != nil {
		return err
	}
	log.Info("serving", "listen", listener.Addr().String(), "store", l.shown)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends the draining too
	return serveHTTP(ctx, listener, h, func() { close(draining) }, f.drain, log)
}

// loopback listens where only this machine reaches.
func loopback(ctx context.Context, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", address, err)
	}
	if at, err := netip.ParseAddrPort(listener.Addr().String()); err == nil && at.Addr().IsLoopback() {
		return listener, nil
	}
	return nil, errors.Join(usagef("--listen %s: it is reached from other machines, and whoever reaches this server may do everything; listen on 127.0.0.1 or [::1]", address), listener.Close())
}

// serveHTTP serves until ctx ends, and then, having called draining, for at most drain what is under way.
func serveHTTP(ctx context.Context, listener net.Listener, h http.Handler, draining func(), drain time.Duration, log *slog.Logger) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: serveHeaderBound, IdleTimeout: serveIdleBound, MaxHeaderBytes: serveHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: serveStreams}}
	s.RegisterOnShutdown(draining)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	log.Info("draining", "for_ms", drain.Milliseconds())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := s.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("calls that were under way are cut off: whether they were applied is not known to their callers, who repeat them")
		err = s.Close()
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
