package operationhttp

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
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
// Set-Cookie, and headers of the connection, are not kept.
func Stored(status int, header http.Header, body []byte) []byte {
	s := stored{Status: status, Header: http.Header{}}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		switch http.CanonicalHeaderKey(name) {
		case "Set-Cookie", "Date", "Connection", "Keep-Alive", "Transfer-Encoding", "Trailer", "Upgrade", "Content-Length":
		default:
			s.Header[name] = header[name]
		}
	}
	if len(body) > MaxAnswer {
		s.Dropped = true
	} else {
		s.Body = body
	}
	return s.encode()
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
	header  http.Header
	status  int
	body    bytes.Buffer
	dropped bool
}

// Header implements [http.ResponseWriter].
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements [http.ResponseWriter]. Informational answers are not sent.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
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
	return Stored(r.status, r.header, r.body.Bytes())
}

func (r *recorder) send(w http.ResponseWriter) {
	if r.dropped {
		problem(w, http.StatusInternalServerError, "dropped", "This request was done. Its answer was too large to be kept and is not sent.", 0)
		return
	}
	maps.Copy(w.Header(), r.header)
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
