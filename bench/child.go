package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/store/sqlite"
)

// runChild is one process of the processes benchmark: it opens the file, says "ready", begins at the first line of its
// input, and writes a childResult.
func runChild(ctx context.Context, config string, stdin io.Reader, stdout, stderr io.Writer) int {
	if err := childWork(ctx, config, stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "bench: a process of the benchmark:", err)
		return exitFailed
	}
	return 0
}

func childWork(ctx context.Context, text string, stdin io.Reader, stdout io.Writer) (err error) {
	var config childConfig
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: config.Path})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Shutdown(context.WithoutCancel(ctx))) }()
	c, err := newClient(ctx, store, time.Duration(config.SessionTTL)*time.Millisecond)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, "ready\n"); err != nil {
		return err
	}
	if _, err := bufio.NewReader(stdin).ReadString('\n'); err != nil {
		return err
	}
	var result childResult
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(time.Duration(config.ForMS) * time.Millisecond)
	for loop := range config.Loops {
		name := fmt.Sprintf("process/%d/%d", config.Number, loop)
		wg.Go(func() {
			one := cycleUntil(ctx, c, name, end)
			mu.Lock()
			defer mu.Unlock()
			result.merge(one)
		})
	}
	one := renewUntil(ctx, c, time.Duration(config.EachMS)*time.Millisecond, end)
	wg.Wait()
	result.merge(one)
	return json.NewEncoder(stdout).Encode(result)
}

func (r *childResult) merge(other childResult) {
	r.Cycles += other.Cycles
	r.Renewals = append(r.Renewals, other.Renewals...)
	r.Acquires = append(r.Acquires, other.Acquires...)
	r.Errors += other.Errors
	r.Locked += other.Locked
	if r.Sample == "" {
		r.Sample = other.Sample
	}
}

// note counts an error. That the text is looked at is the point: "database is locked" must not reach a caller in any wrapping.
func (r *childResult) note(err error) {
	if err == nil {
		return
	}
	r.Errors++
	if strings.Contains(strings.ToLower(err.Error()), "locked") {
		r.Locked++
	}
	if r.Sample == "" {
		r.Sample = err.Error()
	}
}

func cycleUntil(ctx context.Context, c *client, name string, end time.Time) childResult {
	var r childResult
	for ctx.Err() == nil && time.Now().Before(end) {
		took, err := c.cycle(ctx, name)
		r.note(err)
		if err == nil {
			r.Cycles++
			r.Acquires = append(r.Acquires, micros(took))
		}
	}
	return r
}

// renewUntil renews when it is due, whatever became of the renewal before: its time counts from then.
func renewUntil(ctx context.Context, c *client, each time.Duration, end time.Time) childResult {
	var r childResult
	for due := time.Now().Add(each); due.Before(end); due = due.Add(each) {
		if err := pause(ctx, time.Until(due)); err != nil {
			break
		}
		err := c.renew(ctx)
		r.note(err)
		r.Renewals = append(r.Renewals, micros(time.Since(due)))
	}
	return r
}
