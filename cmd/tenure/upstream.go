package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence/fencehttp"
	"github.com/tenure-go/tenure/internal/upstream"
)

// upstreamFlags are what tenure guard may be told.
type upstreamFlags struct {
	upstream, listen, resource, mode, namePrefix string
	only                                         []string
	serialize, passClaim, trustForwarded, asJSON bool
	wait, timeout, giveUp, drain                 time.Duration
	queue, atOnce, maxHeader                     int
	maxBody                                      int64
}

const (
	modeStrict    = "strict"
	modeHighWater = "high-water"
)

func (a *app) upstreamCommand() *cobra.Command {
	var f upstreamFlags
	cmd := &cobra.Command{
		Use:   "guard --upstream URL",
		Short: "refuse stale owners in front of an HTTP service that nobody can change",
		Long: `Passes HTTP requests on to a service that knows nothing of leases, and lets a change of a resource through only under the
claim of the lease that guards it. The claim is in the header Tenure-Claim, as tenure run has it in TENURE_CLAIM. Everything
but GET, HEAD, OPTIONS and TRACE is a change; a read passes without a claim, and with one is checked like a change:
that is how an owner reads what it is about to write. The lease is named as the resource is, after --name-prefix.

Resources: --resource is one of
` + wrap(upstream.Rules, 112) + `.
A path that can be spelled in another way (%37, //, .., \, ;) is refused. By header:NAME the client says what its request
is about; use it only where the service goes by that header too. With --only other paths pass unchecked.

What holds between the check and the effect, by --mode and --serialize:
  strict, PostgreSQL   The store is asked, and grants nobody else while the service is at work on the request, until the
                       lease has run out: a request that takes longer is cut off, and its client told that the service
                       may still do it. It takes a connection of PostgreSQL for as long; --at-once bounds them.
  strict, SQLite       The store is asked, then the request is passed on: the lease may end and another owner be granted
                       while the service is at work. Waiting for it inside the file would stop every renewal.
  high-water           The store keeps the highest token that was let in, durably, before the request is passed on. It
                       notices no expiry, only that a newer owner has been here. It may be another store than the one
                       that grants.
  --serialize          (the default) One request a resource is at work at a time. A newer owner's waits until the
                       service has answered the older one's, even if its client has gone or its lease is over; so what
                       the newer reads and writes comes after. It waits for --wait, then is answered 503 with
                       Retry-After.
  --serialize=false    A request that was let in may still be at work when a newer owner's is let in, and may finish
                       last: its write then replaces the newer one's. Each was checked, and an update is lost.
It holds for what passes this process, and as long as it lives. Run one guard before a service, let nobody reach the
service but through it, and after a guard was killed see that the service has finished before you start another.

Answers: 428 no claim, 400 no readable one, 412 stale (with seen and newer), 409 of another lease or authority, 503 the
turn did not come or the store did not answer: nothing was passed on. 502 and 504: the service gave no answer, and the
text says what is known. They are application/problem+json. Upgrades, such as to websockets, are refused where changes
are protected. Requests to protected resources are read into memory before they are passed on, up to --max-body.

It speaks plain HTTP and knows no users: whoever reaches it can send requests, so it listens on the loopback unless told
otherwise. A made-up claim does not get through, but in mode strict one with a token from the future stops grants of its
name until tenure epoch raise, as everywhere. SIGTERM or Ctrl-C: it takes no more requests, and ends when those under
way have been answered, at the latest after --drain; exit code 1 then says that the service may still be at work.
Refusals are logged to standard error, with --json as JSON.`,
		Example: `  tenure guard --upstream http://127.0.0.1:8080
  tenure guard --upstream http://127.0.0.1:8080 --resource path:2 --only /orders --store postgres://app@127.0.0.1/shop
  tenure guard --upstream http://10.0.0.7 --mode high-water --store sqlite:marks.db --json
  curl -X PUT -H "Tenure-Claim: $TENURE_CLAIM" --data @order.json http://127.0.0.1:7421/orders/7`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.guardUpstream(cmd.Context(), f) },
	}
	f.define(cmd)
	return cmd
}

func (f *upstreamFlags) define(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.upstream, "upstream", "", "`URL` of the service: http or https, a host, and perhaps a path that goes before every request's")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7421", "`ADDRESS` to listen on; port 0 takes a free one, which is printed")
	flags.StringVar(&f.resource, "resource", "path", "`RULE` that says which resource a request is about")
	flags.StringVar(&f.mode, "mode", modeStrict, "strict asks the store for the lease, high-water keeps marks in it")
	flags.StringVar(&f.namePrefix, "name-prefix", "", "`TEXT` before the resource in the name of its lease")
	flags.StringArrayVar(&f.only, "only", nil, "protect only this `PATH` and what is below it; may be given many times")
	flags.BoolVar(&f.serialize, "serialize", true, "let one request a resource through at a time")
	flags.DurationVar(&f.wait, "wait", 5*time.Second, "how long a request waits for its turn")
	flags.IntVar(&f.queue, "queue", 16, "how many requests may wait for one resource")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long a client of a protected resource waits for the service")
	flags.DurationVar(&f.giveUp, "give-up", 0, "give a turn up after this long without an answer, though the service may still be at work; 0: never")
	flags.DurationVar(&f.drain, "drain", 30*time.Second, "how long requests under way may take after SIGTERM")
	flags.IntVar(&f.atOnce, "at-once", 16, "how many requests are checked at a time on PostgreSQL, a connection each")
	flags.Int64Var(&f.maxBody, "max-body", 10<<20, "largest body of a request to a protected resource, in `BYTES`")
	flags.IntVar(&f.maxHeader, "max-header", 64<<10, "largest header of a request, in `BYTES`")
	flags.BoolVar(&f.passClaim, "pass-claim", false, "pass the header Tenure-Claim on to the service")
	flags.BoolVar(&f.trustForwarded, "trust-forwarded", false, "keep the X-Forwarded headers of a proxy before this one")
	flags.BoolVar(&f.asJSON, "json", false, "log JSON")
}

// config is the guard that the flags describe, still without what asks the store.
func (f *upstreamFlags) config(log *slog.Logger) (c upstream.Config, err error) {
	if f.upstream == "" {
		return c, usagef("--upstream is missing: name the service, as in --upstream http://127.0.0.1:8080")
	}
	to, err := url.Parse(f.upstream)
	if err != nil {
		return c, usagef("--upstream: that is no URL") // and is not shown: it may hold a password
	}
	rule, err := upstream.ParseRule(f.resource)
	if err != nil {
		return c, usagef("--resource: %v", err)
	}
	if f.mode != modeStrict && f.mode != modeHighWater {
		return c, usagef("--mode %s: known are %s and %s", f.mode, modeStrict, modeHighWater)
	}
	for name, n := range map[string]int64{"--wait": int64(f.wait), "--timeout": int64(f.timeout), "--drain": int64(f.drain), "--queue": int64(f.queue),
		"--at-once": int64(f.atOnce), "--max-body": f.maxBody, "--max-header": int64(f.maxHeader)} {
		if n <= 0 {
			return c, usagef("%s must be positive", name)
		}
	}
	c = upstream.Config{Upstream: to, Rule: rule, Only: f.only, NamePrefix: f.namePrefix, Timeout: f.timeout, GiveUp: f.giveUp,
		MaxBody: f.maxBody, PassClaim: f.passClaim, TrustForwarded: f.trustForwarded, Log: log}
	if f.serialize {
		c.Turns, err = fencehttp.NewSerializer(fencehttp.SerializeOptions{Wait: f.wait, Queue: f.queue})
	}
	return c, err
}

// logger writes to standard error.
func (a *app) logger(asJSON bool) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(a.stderr, nil))
	}
	return slog.New(slog.NewTextHandler(a.stderr, nil))
}

// guardUpstream serves until a signal.
func (a *app) guardUpstream(ctx context.Context, f upstreamFlags) (err error) {
	log := a.logger(f.asJSON)
	c, err := f.config(log)
	if err != nil {
		return err
	}
	check, l, err := a.openCheck(ctx, f, log)
	if err != nil {
		return err
	}
	defer func() {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		err = errors.Join(err, check.Close(bound))
	}()
	c.Check = check
	g, err := upstream.New(c)
	if err != nil {
		return usagef("%v", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", f.listen, err)
	}
	log.Info("guarding", "listen", listener.Addr().String(), "upstream", c.Upstream.Redacted(), "store", l.shown, "mode", f.mode, "serialize", f.serialize)
	if at, err := netip.ParseAddrPort(listener.Addr().String()); err == nil && !at.Addr().IsLoopback() {
		log.Warn("this address is reached from other machines: claims are checked, but neither who sends them nor who listens on the way")
	}
	if !f.serialize {
		log.Warn("requests do not take turns: one that was let in may still be at work when a newer owner's is, and may replace what that wrote")
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends the draining too
	return upstream.Serve(ctx, listener, g, f.maxHeader, f.drain)
}

// openCheck opens the store. A strict guard on a file that is not there would refuse everything.
func (a *app) openCheck(ctx context.Context, f upstreamFlags, log *slog.Logger) (*upstream.Opened, location, error) {
	l, err := a.env.locate(a.storeFlag)
	if err != nil {
		return nil, l, err
	}
	if err := l.besideTheStore("guard"); err != nil {
		return nil, l, err
	}
	if l.assumed {
		a.say("%s", l.notice())
	}
	if _, err := os.Stat(l.path); !l.postgres && f.mode == modeStrict && errors.Is(err, fs.ErrNotExist) {
		return nil, l, &storeError{fmt.Errorf("there is no store at %s, so there are no leases to ask for; check --store and TENURE_STORE", strconv.Quote(l.path))}
	}
	o := upstream.CheckOptions{HighWater: f.mode == modeHighWater, AtOnce: f.atOnce, Log: log}
	if l.postgres {
		o.URL = l.url
	} else {
		o.Path = l.path
	}
	bound, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	check, err := upstream.OpenCheck(bound, o)
	if err != nil {
		return nil, l, &storeError{fmt.Errorf("%s: %w", l.shown, l.redact(err))}
	}
	return check, l, nil
}
