package drill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
	"github.com/tenure-go/tenure/internal/upstream"
)

// role is what a process of a drill does that wants no lease.
type role string

const (
	roleService role = "service" // writes what it is asked to, and knows nothing of leases
	roleGuard   role = "guard"   // tenure guard
)

// insideService: the service stops itself between the request and the write that it asks for.
const insideService inside = "in-service"

// What an owner is told by a guard, beside its answer.
const (
	toldBusy    = "busy"    // its turn did not come
	toldUnknown = "unknown" // the service gave no answer in time
)

// posted is a request to write, as the service knows it. The token is kept for the log, and nobody looks at it there.
type posted struct {
	Writer  string      `json:"writer"`
	Element string      `json:"element"`
	Base    []string    `json:"base"`
	Token   fence.Token `json:"token"`
	Late    bool        `json:"late"`
	Stop    bool        `json:"stop"` // in the middle of it
}

// serve is a service or a guard until stdin ends.
func (w *worker) serve(ctx context.Context, in *bufio.Scanner) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	start := w.serveService
	if w.Role == roleGuard {
		start = w.serveGuard
	}
	at, ended, err := start(ctx)
	if err != nil {
		return err
	}
	var c command
	for err = receive(in, &c); err == nil; err = receive(in, &c) {
		if err := w.out.send(reply{ID: c.ID, Told: at}); err != nil {
			return err
		}
	}
	stop()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, <-ended)
}

// serveService serves on the listener that the conductor handed over, which the service's other process has too.
func (w *worker) serveService(ctx context.Context) (at string, ended <-chan error, err error) {
	if w.res, err = openResource(w.place, w.Run); err != nil {
		return "", nil, err
	}
	const first = 3 // after stdin, stdout and stderr
	file := os.NewFile(first, "listener")
	listener, err := net.FileListener(file)
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("%w: the listener: %w", ErrProcess, err), w.res.close())
	}
	_ = file.Close() // the listener has its own
	server := &http.Server{Handler: http.HandlerFunc(w.service), ReadHeaderTimeout: roundBound}
	server.SetKeepAlivesEnabled(false) // a connection to a process that is stopped must not be used again
	done := make(chan error, 1)
	go func() {
		err := server.Serve(listener)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		done <- errors.Join(err, w.res.close())
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return "http://" + listener.Addr().String(), done, nil
}

// service reads and writes the value of its round, for whoever asks. What it has begun it finishes, whatever becomes of the client.
func (w *worker) service(to http.ResponseWriter, r *http.Request) {
	ctx := context.WithoutCancel(r.Context())
	var content []string
	var err error
	if r.Method == http.MethodGet {
		content, err = w.res.read(ctx, w.Round)
	} else {
		err = w.put(ctx, r.Body)
	}
	if err != nil {
		http.Error(to, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(to).Encode(content) // to a client that may have gone
}

func (w *worker) put(ctx context.Context, body io.Reader) error {
	var p posted
	if err := json.NewDecoder(io.LimitReader(body, maxLine)).Decode(&p); err != nil {
		return err
	}
	if p.Stop {
		if err := w.stop(ctx); err != nil {
			return err
		}
	}
	write := writing{round: w.Round, writer: p.Writer, element: p.Element, base: p.Base, claim: fence.Claim{Token: p.Token}, late: p.Late}
	_, err := w.res.write(ctx, write, nil)
	return err
}

// serveGuard is tenure guard, with short bounds.
func (w *worker) serveGuard(ctx context.Context) (at string, ended <-chan error, err error) {
	to, err := url.Parse(w.Service)
	if err != nil {
		return "", nil, err
	}
	o := upstream.CheckOptions{Place: upstream.Place{Path: w.Path, URL: w.URL}, HighWater: w.Guard == guardMark, AtOnce: 2}
	if o.URL != "" {
		if _, o.URL, err = (postgresSite{url: o.URL}).addresses(); err != nil {
			return "", nil, err
		}
	}
	check, err := upstream.OpenCheck(ctx, o)
	if err != nil {
		return "", nil, err
	}
	c := upstream.Config{Upstream: to, Check: check, Timeout: doorTimeout, MaxBody: maxLine}
	if !w.NoTurns {
		if c.Turns, err = fencehttp.NewSerializer(fencehttp.SerializeOptions{Wait: doorWait}); err != nil {
			return "", nil, err
		}
	}
	if w.door != nil {
		w.door(&c)
	}
	g, err := upstream.New(c)
	if err != nil {
		return "", nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	done := make(chan error, 1)
	go func() {
		err := upstream.Serve(ctx, listener, g, http.DefaultMaxHeaderBytes, time.Second)
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		done <- errors.Join(err, check.Close(bound))
	}()
	return "http://" + listener.Addr().String(), done, nil
}

// ask sends a request under the claim that was kept, and returns the answer's status and body, or the refusal.
func (w *worker) ask(ctx context.Context, method string, body []byte) (status int, text []byte, refusal error, err error) {
	at, err := url.Parse(w.Service)
	if err != nil {
		return 0, nil, nil, err
	}
	r, err := http.NewRequestWithContext(fencehttp.WithClaim(ctx, w.claim), method, w.Service+"/"+nameOf(w.Run, w.Round), bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	client := &http.Client{Transport: &fencehttp.Transport{Base: &http.Transport{DisableKeepAlives: true}, Hosts: []string{at.Host}}}
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	refusal = fencehttp.ErrorOf(resp)
	text, err = io.ReadAll(io.LimitReader(resp.Body, maxLine))
	return resp.StatusCode, text, refusal, errors.Join(err, resp.Body.Close())
}

// readHTTP reads what it will write, under the claim. Where its turn does not come it says so, and asks again for as long as it was told to.
func (w *worker) readHTTP(ctx context.Context, c command) (reply, error) {
	until := time.Now().Add(ofMillis(c.Wait))
	for {
		status, text, refusal, err := w.ask(ctx, http.MethodGet, nil)
		switch {
		case err != nil:
			return reply{}, err
		case errors.Is(refusal, fencehttp.ErrBusy) && time.Now().After(until):
			return reply{Told: toldBusy}, nil
		case errors.Is(refusal, fencehttp.ErrBusy): // it has waited there
		case refusal != nil:
			return reply{}, refusal
		case status != http.StatusOK:
			return reply{}, fmt.Errorf("%w: the service: %d %s", ErrProcess, status, strings.TrimSpace(string(text)))
		default:
			w.content = nil
			err := json.Unmarshal(text, &w.content)
			return reply{Content: w.content}, err
		}
	}
}

// writeHTTP sends a write under the claim that was kept. What the service accepts it records itself, a refusal is recorded here;
// of a write that nobody answered this process knows nothing.
func (w *worker) writeHTTP(ctx context.Context, c command) (reply, error) {
	write := w.writing(c)
	body, err := json.Marshal(posted{Writer: write.writer, Element: write.element, Base: write.base, Token: write.claim.Token, Late: write.late, Stop: c.Inside == insideService})
	if err != nil {
		return reply{}, err
	}
	status, text, refusal, err := w.ask(ctx, http.MethodPut, body)
	var refused *fence.RefusedError
	switch {
	case err != nil:
		return reply{}, err
	case errors.As(refusal, &refused):
		answer, err := w.res.answered(ctx, write, refused)
		return reply{Answer: &answer}, err
	case refusal != nil:
		return reply{}, refusal
	case c.Inside == insideService && (status == http.StatusGatewayTimeout || status == http.StatusBadGateway):
		return reply{Told: toldUnknown}, nil
	case status != http.StatusOK:
		return reply{}, fmt.Errorf("%w: the service: %d %s", ErrProcess, status, strings.TrimSpace(string(text)))
	}
	return reply{Answer: &model.Answer{Round: write.round, Writer: write.writer, Element: write.element, Token: write.claim.Token, Late: write.late, Accepted: true}}, nil
}
