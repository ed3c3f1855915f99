// Package tenure_test holds the rules of the house as data: each row says what holds and why. The
// checks that read the tables are in arch_checks_test.go; arch_self_test.go shows that each can fail.
package tenure_test

import (
	"testing"
)

const module = "github.com/tenure-go/tenure"

// importRow says what the non-test files of a package may import beside the standard library.
type importRow struct {
	pkg     string   // folder; "x/..." stands for x and all below it
	imports []string // folders of this module ("x/..." as above), or paths of other modules
	why     string
}

// importTable holds one row for each package of the root module; a package without a row, and a row
// without a package, fail. Arrows only point down this table.
func importTable() []importRow {
	return append(suiteRows(), []importRow{
		{".", nil, "documentation alone"},
		{"fence", nil, "imported at the resource, where a dependency is least welcome"},
		{"fence/file", []string{"fence", "golang.org/x/sys"}, "a resource that knows no authority: the rules, and what talks to the kernel"},
		{"fence/object", []string{"fence"}, "the rule for objects; who uses it with a client of their own brings no other"},
		{"fence/object/s3", []string{"fence/object", "github.com/minio/minio-go/v7"}, "an adapter imports its own client, and the rule"},
		{"fence/fencehttp", []string{"fence"}, "the door of a service: whoever stands behind it brings no store along"},
		{"budget", []string{"internal/clock"}, "waiting is everybody's, so it brings nothing along but the clock that goes on while the machine sleeps"},
		{"budget/admission", []string{"budget", "budget/budgethttp", "github.com/failsafe-go/failsafe-go"}, "how much is let in is learnt by a limiter that others keep; who waits, and in what order, is its own"},
		{"budget/budgethttp", []string{"budget"}, "an adapter of the standard library's own protocol"},
		{"budget/budgetconnect", []string{"budget", "budget/budgethttp", "budget/internal/rpc", "connectrpc.com/connect", "google.golang.org/genproto/googleapis/rpc", "google.golang.org/protobuf"},
			"an adapter of the protocol that server and client speak, and so one of the root module"},
		{"budget/budgetconnect/admissionconnect", []string{"budget", "budget/admission", "budget/budgetconnect", "budget/budgethttp", "budget/internal/rpc", "connectrpc.com/connect", "google.golang.org/protobuf"}, "who is let in, of those calls"},
		{"internal/wire", []string{"fence", "hold", "lease", "operation", "internal/gen/...", "connectrpc.com/connect", "google.golang.org/protobuf"},
			"what server and client must agree on: the contracts' values as messages"},
		{"server", []string{"budget/admission", "budget/budgetconnect/...", "budget/budgethttp", "fence", "hold", "lease", "operation", "internal/gen/...", "internal/wire", "connectrpc.com/connect",
			"connectrpc.com/grpchealth", "connectrpc.com/grpcreflect", "google.golang.org/protobuf"},
			"it serves contracts, whatever store is behind them: cmd wires"},
		{"client", []string{"budget", "budget/budgetconnect", "budget/budgethttp", "fence", "hold", "lease", "operation", "internal/gen/...", "internal/wire", "connectrpc.com/connect", "google.golang.org/protobuf"},
			"a sibling of the stores that implements the same contracts"},
		{"budget/internal/rpc", []string{"budget", "budget/budgethttp"}, "what gRPC and Connect have in common, so that their adapters, modules of their own, cannot differ"},
		{"budget/budgetsql", []string{"budget"}, "it knows drivers by the methods of their errors, and imports none"},
		{"fresh", []string{"budget", "internal/clock", "github.com/maypok86/otter/v2"}, "until when a value counts: a load has a budget, age goes on while the machine sleeps, and the cache below is one that others keep"},
		{"internal/clock", nil, "a leaf: reads the boot clock by the system call itself"},
		{"internal/flakypay", nil, "a leaf: a provider that misbehaves knows nobody whom it misbehaves to, so that an audit by its ledger is an outsider's"},
		{"internal/suites", nil, "a leaf: reads what go test prints"},
		{"internal/supervise", []string{"internal/clock", "golang.org/x/sys"}, "a leaf: stops a process group by a deadline, whatever the right to run is"},
		{"internal/tune", []string{"lease", "internal/clock"},
			"a model of the client and a sample of a store: it knows the contract, and no store"},
		{"internal/upstream", []string{"fence", "fence/fencehttp", "store/sqlite", "store/postgres", "github.com/jackc/pgx/v5"},
			"the proxy of tenure guard, which cmd serves and a drill runs as a process: it asks stores, so it stands beside them"},
		{"internal/testdb", []string{"internal/testdb/pgserver", "github.com/jackc/pgx/v5"},
			"for test files alone: it hands failures to a testing.TB"},
		{"internal/testdb/pgserver", []string{"github.com/jackc/pgx/v5"},
			"a leaf without testing in it: a drill builds the servers that it fails over at run time"},
		{"internal/testdb/s3gateway", nil, "for test files alone: it builds and starts the S3 server of the module internal/testdb/s3"},
		{"operation", []string{"fence"}, "the rules of recorded outcomes; stores apply them"},
		{"hold", []string{"fence"}, "the contract of what is for sale; stores apply it"},
		{"outbox", []string{"fence"}, "the contract of messages; stores apply it"},
		{"outbox/outboxhttp", []string{"budget", "budget/budgethttp", "outbox", "outbox/internal/keyed"}, "an adapter of the standard library's own protocol, within a budget"},
		{"outbox/internal/keyed", []string{"outbox"}, "what sinks that send several at once have in common, so that they, in modules of their own, cannot differ"},
		{"inbox", nil, "the contract of consumers; stores apply it"},
		{"relay", []string{"fence", "lease", "outbox", "internal/clock"}, "it stands to an outbox as a worker to operations: ids are lease's, the store is whoever wires it"},
		{"operation/operationhttp", []string{"operation"}, "the door of an endpoint: whoever stands behind it brings its own store"},
		{"lease", []string{"fence", "internal/clock"},
			"the contract; whoever implements or uses it brings no driver along"},
		{"worker", []string{"fence", "budget", "lease", "operation", "internal/clock", "github.com/netresearch/go-cron"},
			"where the four concerns meet; it knows contracts and no store, and reads the times of a schedule by a parser that others keep"},
		{"store/memory", []string{"fence", "hold", "lease", "operation", "outbox", "internal/clock"}, "the oracle: nothing may stand between the rules and the reader"},
		{"store/sqlite", []string{"fence", "lease", "operation", "hold", "inbox", "outbox", "internal/clock", "modernc.org/sqlite", "golang.org/x/sys"},
			"a store imports its own driver and no sibling"},
		{"store/postgres", []string{"fence", "hold", "inbox", "lease", "operation", "outbox", "internal/clock", "github.com/jackc/pgx/v5"}, "a store imports its own driver and no sibling"},
		{"drill/...", []string{"fence", "fence/file", "fence/object/...", "budget", "hold", "inbox", "lease", "operation", "outbox", "relay", "worker", "store/...", "drill/...", "internal/clock", "internal/flakypay", "internal/supervise", "internal/upstream", "fence/fencehttp", "internal/testdb/pgserver", "github.com/jackc/pgx/v5", "github.com/minio/minio-go/v7", "golang.org/x/sys"},
			"drives real stores, and is driven by cmd; its resource is tables beside the store, which takes the store's driver, or the ledger of a provider of its own, whom real workers pay, holds are what sellers of its own sell, and real relays carry messages to a consumer of its own; failover builds servers of its own"},
		{"cmd/tenure/...", []string{"client", "server", "fence", "lease", "operation", "hold", "outbox", "store/...", "drill/...", "cmd/tenure/...", "fence/fencehttp", "internal/clock", "internal/supervise", "internal/tune", "internal/upstream", "golang.org/x/sys", "github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/jackc/pgx/v5"},
			"the place where things are wired"},
		{"examples/sql", nil, "Tenure without Go: its code is in other languages, and Go runs it in tests"},
		{"examples/http", nil, "Tenure without Go: its code is in other languages, and Go runs it in tests"},
		{"clients/js", nil, "no Go: a client in JavaScript, which a test runs in Node"},
		{"examples/choosing", nil, "its tests are what it is for"},
		{"examples/payments", []string{"fence", "budget", "budget/budgethttp", "lease", "operation", "worker"}, "what a shop needs, and no store: that is the shop's choice"},
		{"examples/seats", []string{"fence", "hold", "operation", "worker", "store/postgres", "github.com/jackc/pgx/v5"}, "a sale is one transaction of the shop's own database"},
	}...)
}

// suiteRows are those of importTable for conformance suites and for random histories, which are imported by tests alone.
func suiteRows() []importRow {
	return []importRow{
		{"internal/histories", []string{"fence", "lease", "lease/leasetest", "pgregory.net/rapid"},
			"random histories for test files: no row but the tests' own names it, so rapid reaches nobody else"},
		{"internal/ophistories", []string{"operation", "operation/operationtest", "pgregory.net/rapid"},
			"random histories of operations for test files, apart from those of leases so that either brings only its own suite"},
		{"internal/holdhistories", []string{"fence", "hold", "hold/holdtest", "pgregory.net/rapid"},
			"random histories of holds for test files, apart from the others so that each brings only its own suite"},
		{"internal/outboxhistories", []string{"fence", "outbox", "outbox/outboxtest", "pgregory.net/rapid"},
			"random histories of messages for test files, apart from the others so that each brings only its own suite"},
		{"lease/leasetest", []string{"fence", "lease"},
			"other stores run the suite in their own tests, so it asks for nothing but the standard library"},
		{"operation/operationtest", []string{"fence", "operation"},
			"other stores run the suite in their own tests, so it asks for nothing but the standard library"},
		{"hold/holdtest", []string{"fence", "hold"},
			"other stores run the suite in their own tests, so it asks for nothing but the standard library"},
		{"outbox/outboxtest", []string{"fence", "outbox"},
			"other stores run the suite in their own tests, so it asks for nothing but the standard library"},
		{"inbox/inboxtest", []string{"inbox"},
			"other stores run the suite in their own tests, so it asks for nothing but the standard library"},
	}
}

// testImportTable says what test files may import beside what their package may. "..." as a package
// stands for all.
func testImportTable() []importRow {
	return []importRow{
		{"...", []string{"fence", "lease", "lease/leasetest", "operation", "operation/operationtest", "hold", "hold/holdtest", "outbox", "outbox/outboxtest", "inbox", "inbox/inboxtest", "internal/..."}, "contracts and their conformance suite"},
		{"...", []string{"pgregory.net/rapid", "go.uber.org/goleak"}, "property tests and leak checks never reach what others import"},
		{".", []string{"store/..."}, "the example of README is compiled and run here"},
		{"budget", []string{"budget/admission"}, "only its own tests can put a machine to sleep: nobody is let in after that"},
		{"fence/object", []string{"fence/object/s3", "github.com/minio/minio-go/v7"}, "the rule is tried on a real store, and its twins are caught there"},
		{"server", []string{"store/memory"}, "calls are served over the oracle, on a real socket"},
		{"client", []string{"server", "store/memory"}, "the suites run through a server over the oracle, on a real socket"},
		{"lease/...", []string{"store/memory"}, "the client and the suite are tried on the oracle"},
		{"operation/operationhttp", []string{"store/memory"}, "the middleware is tried on the oracle"},
		{"operation/operationtest", []string{"store/memory"}, "the suite is tried on the oracle"},
		{"hold/holdtest", []string{"store/memory"}, "the suite is tried on the oracle"},
		{"outbox/outboxhttp", []string{"relay", "store/sqlite"}, "its example is compiled and run"},
		{"outbox/outboxtest", []string{"store/memory"}, "the suite is tried on the oracle"},
		{"hold", []string{"store/memory"}, "its example is compiled and run"},
		{"operation", []string{"store/memory"}, "what callers use is tried on the oracle"},
		{"relay", []string{"store/memory"}, "a relay is tried on the oracle, in a bubble"},
		{"worker", []string{"store/memory"}, "a worker and a reconciler are tried on the oracle, in a bubble"},
		{"internal/tune", []string{"store/memory"}, "a sample is taken of a real store, in a bubble"},
		{"store/sqlite", []string{"store/memory"}, "random histories run on the oracle in step"},
		{"store/sqlite", []string{"client", "server"}, "the suites run on a file behind a server too"},
		{"store/postgres", []string{"client", "server"}, "the suite of leases runs on a database behind a server too"},
		{"store/postgres", []string{"store/memory"}, "random histories run on the oracle in step"},
		{"examples/sql", []string{"store/postgres", "github.com/jackc/pgx/v5"}, "the scripts run on the schema that the store installs"},
		{"examples/http", []string{"lease", "operation", "server", "store/memory"}, "the script runs against a server on a real socket"},
		{"clients/js", []string{"fence", "server", "store/memory"}, "its tests run against a server on a real socket"},
		{"examples/choosing", []string{"store/postgres", "store/sqlite", "github.com/jackc/pgx/v5", "golang.org/x/sys"}, "real locks side by side: the kernel's, the server's, and leases"},
		{"examples/payments", []string{"store/memory", "store/postgres", "store/sqlite", "github.com/jackc/pgx/v5"}, "the audit runs on real stores, and its twins on the oracle"},
	}
}

// exception names one place that a check would report, and why it may stay.
type exception struct {
	check string // as in the name of the check's subtest
	at    string // file, and where the finding is within it, as the check prints them without the line
	why   string
}

// exceptions is short, or the rules are wrong. A row that excuses nothing fails.
func exceptions() []exception {
	return []exception{
		{"no package variable", "store/sqlite/fence.go: package variable kernel",
			"a fact of the running process, read once by sync.OnceValue and never assigned: Verify, Enter and Admit have no store to keep it in"},
		{"no package variable", "internal/testdb/home.go: package variable binary",
			"the server that all tests of a binary share: go test hands them nothing in common, and one server a test costs each a second"},
		{"interface size", "operation/store.go: interface Backend has more than 7 methods",
			"the sum of four contracts, for wiring and for the suite: whoever uses operations takes one of the four"},
	}
}

// Limits on what a reader must hold in mind at once.
const (
	maxFunctionLines    = 70  // from `func` to the closing brace
	maxFileLines        = 500 // a longer file has two subjects
	maxInterfaceMethods = 7   // a larger contract is implemented with stubs, and stubs lie
)

// TestArchitecture runs each check over every Go file of the repository.
func TestArchitecture(t *testing.T) {
	root := loadTree(t, ".", false)
	all := loadTree(t, ".", true)
	checks := []struct {
		name    string
		why     string
		sources []*source
		run     func([]*source) []finding
	}{
		{"imports", "arrows point down: a reader of one floor need not know the floors above", root, importCheck(importTable(), testImportTable())},
		{"package comment", "a folder says in its own words what it is for", all, checkPackageComments},
		{"no init", "work done by an import cannot be refused, ordered or tested", all, checkNoInit},
		{"no package variable", "state that everybody shares has no owner", all, checkNoPackageVars},
		{"sentinels in errors.go", "one file shows all that a package can answer with", root, checkSentinelsInErrorsFile},
		{"function size", "what does not fit a screen is not checked by eye", all, checkFunctionSize},
		{"file size", "a file is one subject", all, checkFileSize},
		{"interface size", "a store that cannot do a thing does not have the method", all, checkInterfaceSize},
		{"no sleep in tests", "a sleep is a guess about another machine's speed: use synctest, a clock, or a signal", all, checkNoSleepInTests},
		{"no skipped test", "a skipped test reads as a passed one", all, checkNoSkip},
	}
	used := map[exception]bool{}
	for _, check := range checks {
		t.Run(check.name, func(t *testing.T) {
			for _, found := range check.run(check.sources) {
				if e, ok := excused(check.name, found); ok {
					used[e] = true
					continue
				}
				t.Errorf("%s\n\twhy the rule: %s", found, check.why)
			}
		})
	}
	for _, e := range exceptions() {
		if !used[e] {
			t.Errorf("exception for %q at %s excuses nothing: remove it", e.check, e.at)
		}
	}
}

func excused(check string, found finding) (exception, bool) {
	for _, e := range exceptions() {
		if e.check == check && e.at == found.file+": "+found.what {
			return e, true
		}
	}
	return exception{}, false
}

// TestEveryRowHasItsReason holds the tables to their purpose.
func TestEveryRowHasItsReason(t *testing.T) {
	for _, row := range append(importTable(), testImportTable()...) {
		if row.why == "" {
			t.Errorf("import row for %s has no reason", row.pkg)
		}
	}
	for _, e := range exceptions() {
		if e.why == "" {
			t.Errorf("exception for %q at %s has no reason", e.check, e.at)
		}
	}
}

// forbiddenWord is a text that no file may contain; a word of letters counts only as a whole word. They
// are cut in two here, so that this file does not contain them either.
type forbiddenWord struct {
	word string
	why  string
}

func forbiddenWords() []forbiddenWord {
	const (
		paths = "the repository works wherever it is cloned: no path of one machine"
		hosts = "modules come from wherever the reader's tools are told to look: no registry by name"
		later = "what is not done is left out whole, and said in CHANGELOG.md"
	)
	return []forbiddenWord{
		{"/" + "work/", paths},
		{"/" + "farm/", paths},
		{"proxy." + "golang", hosts},
		{"sum." + "golang", hosts},
		{"registry." + "npm", hosts},
		{"deb." + "debian", hosts},
		{"TO" + "DO", later},
		{"FIX" + "ME", later},
		{"XX" + "X", later},
	}
}

// TestForbiddenWords reads every text file of the repository.
func TestForbiddenWords(t *testing.T) {
	for _, file := range loadTexts(t, ".") {
		for _, found := range checkWords(file.name, file.text, forbiddenWords()) {
			t.Error(found)
		}
	}
}
