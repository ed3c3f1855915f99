package payments_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/internal/flakypay"
)

// receipt is an answer that a process has had, whole. It is a line of that process's file before anything else is done with it, so that it is known also of one that was killed.
type receipt struct {
	Op      flakypay.Op      `json:"op"`
	Key     string           `json:"key"`
	Attempt int64            `json:"attempt"` // 0: an inquiry's
	Answer  int64            `json:"answer"`
	Status  int              `json:"status"`
	Finding flakypay.Finding `json:"finding"`
}

// book is a process's file of receipts. Each line is written in one call, at its end.
type book struct{ file *os.File }

func openBook(name string) (*book, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	return &book{file}, err
}

func (b *book) note(r receipt) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = b.file.Write(append(line, '\n'))
	return err
}

// readBook reads a file of receipts. A last line without its end is none.
func readBook(name string) (all []receipt, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		var r receipt
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
}

// receiving notes answers that have arrived whole, below everything that makes something of them.
type receiving struct {
	base http.RoundTripper
	book *book
}

// RoundTrip is part of http.RoundTripper.
func (t *receiving) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	text, broken := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read, or is broken
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text), failing{broken}))
	if broken != nil {
		return resp, nil //nolint:nilerr // whoever reads the body is told
	}
	r := receipt{Op: flakypay.Charge, Key: req.Header.Get(flakypay.HeaderKey), Status: resp.StatusCode}
	if strings.HasPrefix(req.URL.Path, "/refunds") {
		r.Op = flakypay.Refund
	}
	if r.Key == "" {
		r.Key = req.URL.Query().Get("key")
	}
	r.Attempt, _ = strconv.ParseInt(req.Header.Get(flakypay.HeaderAttempt), 10, 64) // 0 where there is none
	r.Answer, _ = strconv.ParseInt(resp.Header.Get(flakypay.HeaderAnswer), 10, 64)
	var reply flakypay.Reply
	if json.Unmarshal(text, &reply) == nil {
		r.Finding = reply.Finding
	}
	if r.Answer == 0 { // it was not understood, and is not in the ledger
		return resp, nil
	}
	return resp, t.book.note(r)
}

// failing is a body's end.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// hearing notes webhooks before they are recorded.
type hearing struct {
	book *book
	next http.Handler
}

func (h *hearing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var n flakypay.Notice
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	if err == nil {
		attempt, _ := strconv.ParseInt(n.Attempt, 10, 64) // 0 where there is none
		err = h.book.note(receipt{Op: n.Op, Key: n.Key, Attempt: attempt, Answer: n.Answer, Status: n.Status})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	h.next.ServeHTTP(w, r)
}
