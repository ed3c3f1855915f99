package operationhttp

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// stored is an answer as an operation's result keeps it.
type stored struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
	// Dropped: the body was too large to be kept.
	Dropped bool `json:"dropped,omitempty"`
}

// Stored is the result by which a handler completes its attempt itself, in the transaction of its effect: what every caller under the key is answered. The handler then writes the same answer.
// Set-Cookie, challenges, and headers of the connection, are not kept. Of an answer that is too large only the status is.
func Stored(status int, header http.Header, body []byte) []byte {
	s := stored{Status: status, Header: http.Header{}, Body: body}
	for name, values := range header {
		if replayed(header, name) {
			s.Header[name] = values
		}
	}
	if len(body) <= MaxAnswer {
		if text := s.encode(); len(text) <= operation.MaxBody {
			return text
		}
	}
	return (&stored{Status: status, Dropped: true}).encode()
}

// replayed reports whether a header is of the answer, rather than of the connection or the moment that it was first given in.
func replayed(header http.Header, name string) bool {
	name = http.CanonicalHeaderKey(name)
	switch name {
	case "Set-Cookie", "Date", "Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Content-Length", "Www-Authenticate", "Proxy-Authenticate",
		"Authentication-Info", "Proxy-Authentication-Info", ReplayedHeader:
		return false
	}
	if strings.HasPrefix(name, http.TrailerPrefix) {
		return false
	}
	for _, line := range header.Values("Connection") { // what it names is of the connection too
		for hop := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(hop), name) {
				return false
			}
		}
	}
	return true
}

func (s *stored) encode() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // numbers, texts and bytes: nothing in it can fail
	}
	return text
}

// replay answers from what was kept.
func replay(w http.ResponseWriter, result []byte) {
	var s stored
	if err := json.Unmarshal(result, &s); err != nil || s.Status < 200 || s.Status > 599 {
		problem(w, http.StatusConflict, "forgotten", "This request was done. Its answer is not kept any more.", 0)
		return
	}
	w.Header().Set(ReplayedHeader, "true")
	if s.Dropped {
		problem(w, http.StatusConflict, "dropped", "This request was done. Its answer, with status "+strconv.Itoa(s.Status)+", was too large to be kept.", 0)
		return
	}
	maps.Copy(w.Header(), s.Header)
	w.WriteHeader(s.Status)
	_, _ = w.Write(s.Body) // the caller may be gone
}

// recorder keeps an answer back until it is recorded.
type recorder struct {
	header  http.Header // the handler's
	sent    http.Header // as it was when the status was written: what comes later is not of the answer
	status  int
	body    bytes.Buffer
	dropped bool
}

// Header implements [http.ResponseWriter].
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements [http.ResponseWriter]. Informational answers are not sent. A status that is none is taken for 500: it says nothing, and above all not that all went well.
func (r *recorder) WriteHeader(status int) {
	if status < 100 || status > 599 {
		status = http.StatusInternalServerError
	}
	if r.status == 0 && status >= 200 {
		r.status, r.sent = status, r.header.Clone()
	}
}

// Write implements [http.ResponseWriter].
func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.dropped || r.body.Len()+len(b) > MaxAnswer {
		r.dropped = true
		return 0, ErrTooLarge
	}
	return r.body.Write(b)
}

// answer is what the handler has answered, as it is kept.
func (r *recorder) answer() []byte {
	if r.dropped {
		return (&stored{Status: r.status, Dropped: true}).encode()
	}
	return Stored(r.status, r.sent, r.body.Bytes())
}

// send gives the answer to the caller. known is what it says.
func (r *recorder) send(w http.ResponseWriter, known operation.Known) {
	switch {
	case r.dropped && known == operation.Effective:
		problem(w, http.StatusInternalServerError, "dropped", "This request was done. Its answer was too large to be kept and is not sent.", 0)
		return
	case r.dropped:
		problem(w, r.status, "failed", "The answer was too large, and is not sent.", 0)
		return
	}
	maps.Copy(w.Header(), r.sent)
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body.Bytes()) // the caller may be gone
}

// Problem is the body of a refusal, application/problem+json as in RFC 9457.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func problem(w http.ResponseWriter, status int, code, detail string, retry time.Duration) {
	text, err := json.Marshal(Problem{Type: "https://github.com/tenure-go/tenure/tree/main/operation/operationhttp#" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail})
	if err != nil {
		panic(err) // texts and a number
	}
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((retry+time.Second-1)/time.Second)))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the caller may be gone
}
