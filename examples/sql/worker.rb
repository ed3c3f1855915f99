#!/usr/bin/env ruby
# frozen_string_literal: true

# Writes lines of a report while holding a lease of Tenure's, in plain SQL. Opens a session, acquires the lease NAME, renews
# in the background, writes each line in a transaction that checks the lease, releases, and closes. Needs the gem pg,
# tenure's schema, the table of setup.sql, and a role with tenure_user.

require "optparse"
require "pg"

ANSWER = 5.0 # seconds for which an answer is asked for again, with the same ids

# It goes on while the machine sleeps, where the system has such a clock.
CLOCK = Process.const_defined?(:CLOCK_BOOTTIME) ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC

def clock
  Process.clock_gettime(CLOCK)
end

# The lease may be somebody else's by now.
class Lost < StandardError; end

# Somebody else has the lease.
class Held < StandardError; end

# Calls tenure's functions on a connection of its own, each in a transaction of its own: outside a transaction block.
class Caller
  # Classes of SQLSTATE that may be gone the next time: connection, rollback, resources, state of an object, operator.
  PASSING = %w[08 40 53 55 57].freeze

  def initialize(url)
    @url = url
  end

  # The row, and when the request that it answers was sent. An answer that does not come says nothing about what became of
  # the request: the same call with the same ids settles it, until the deadline.
  def call(sql, args, deadline)
    @conn ||= PG.connect(@url, connect_timeout: 2, tcp_user_timeout: 2000)
    sent = clock
    [sent, @conn.exec_params(sql, args).first]
  rescue PG::Error => e
    close
    state = e.is_a?(PG::ServerError) ? e.result&.error_field(PG::PG_DIAG_SQLSTATE) : nil
    raise if (state && !PASSING.include?(state[0, 2])) || clock >= deadline

    sleep(rand(0.05..0.25))
    retry
  end

  def close
    @conn&.close unless @conn&.finished?
    @conn = nil
  end
end

# A session with one lease at a time, and until when this process may believe that it holds.
class Session
  OPEN = "SELECT outcome, extract(epoch FROM remaining) AS left FROM tenure.open_session($1, $2, make_interval(secs => $3))"
  RENEW = "SELECT outcome, extract(epoch FROM remaining) AS left, $2::uuid = ANY (revoked) AS revoked FROM tenure.renew($1, $2)"
  ACQUIRE = "SELECT outcome, claim, token, holder, remaining FROM tenure.acquire($1, $2, ARRAY[$3]::text[], p_closed_below => $2)"
  RELEASE = "SELECT outcome FROM tenure.release($1, $2, ARRAY[$3]::text[])"
  CLOSE = "SELECT outcome FROM tenure.close_session($1)"

  def initialize(url, owner, ttl)
    @ttl = ttl
    @margin = [ttl / 10, 0.5].max # for clocks of different rates, and for what runs between check and use
    @lock = Mutex.new
    @wake = ConditionVariable.new
    @closing = false
    @caller = Caller.new(url)
    @id = new_id
    sent, row = @caller.call(OPEN, [@id, owner, ttl], clock + ANSWER)
    raise Lost, "the session is over before it began: #{row['outcome']}" unless row["outcome"] == "open"

    @until = sent + row["left"].to_f - @margin
    @renewals = Caller.new(url) # a renewal must not queue behind work
    @renewer = Thread.new { renew }
  end

  # Fails early. What keeps a late write out is not this look at a clock but the check in the write's transaction.
  def check
    why = @lock.synchronize do
      @why ||= "no renewal was answered in time" if clock >= @until
      @why
    end
    raise Lost, why if why
  end

  # The claim and its token. While the lease is held this polls; being refused costs the database no write.
  def acquire(name, wait)
    @acquisition = new_id
    give_up = clock + wait
    loop do
      check
      _, row = @caller.call(ACQUIRE, [@id, @acquisition, name], clock + ANSWER)
      case row["outcome"]
      when "granted" then return row["claim"], row["token"]
      when "held", "busy"
        raise Held, "#{name} is held by #{row['holder'] || 'somebody'} for #{row['remaining']} at most, unless renewed" if clock >= give_up
      else raise Lost, "the lease was not granted: #{row['outcome']}"
      end
      sleep(rand(0.1..0.3))
    end
  end

  # Lets go. If it cannot be said, the lease expires by itself, as nobody renews any more.
  def close(name)
    @lock.synchronize do
      @closing = true
      @wake.signal
    end
    @renewer.join
    @caller.call(RELEASE, [@id, @acquisition, name], clock + ANSWER) if @acquisition
    @caller.call(CLOSE, [@id], clock + ANSWER)
  rescue PG::Error => e
    warn "could not let go, the lease expires by itself: #{e.message}"
  ensure
    @caller.close
    @renewals.close
  end

  private

  def new_id
    @caller.call("SELECT tenure.new_id() AS id", [], clock + ANSWER).last["id"]
  end

  def stop(why)
    @lock.synchronize { @why ||= why }
  end

  def renew
    until closed_within(@ttl / 3)
      # Nothing below the acquisition will be asked for again, so the database need not remember it.
      sent, row = @renewals.call(RENEW, [@id, @acquisition], @until)
      return stop("the session is over: #{row['outcome']}") unless row["outcome"] == "renewed"
      return stop("an operator revoked the lease") if row["revoked"] == "t"

      check # what is over does not come back, even if the answer says that all is well
      @lock.synchronize { @until = sent + row["left"].to_f - @margin } # from before it was sent: a slow answer shortens it
    end
  rescue PG::Error => e
    stop("renewals fail: #{e.message}")
  rescue Lost
    nil
  end

  def closed_within(seconds)
    @lock.synchronize do
      @wake.wait(@lock, seconds) unless @closing
      @closing
    end
  end
end

# One line, in one transaction with the check that comes first.
def write(conn, options, claim, token)
  name = options[:name]
  conn.transaction do # commits, or rolls back what an exception ends
    if options[:fence] == "verify"
      # Strict: refused unless the lease is valid now, and nobody else is granted it before this transaction ends.
      conn.exec_params("SELECT tenure.verify($1)", [claim])
    else
      # High-water: refused once a successor has entered. It is written before anything is read.
      conn.exec_params("SELECT tenure.enter($1, $2)", ["report/#{name}", claim])
    end
    line = conn.exec_params("SELECT coalesce(max(line), 0) + 1 FROM report WHERE name = $1", [name]).getvalue(0, 0)
    conn.exec_params("INSERT INTO report (name, line, made_by, token) VALUES ($1, $2, $3, $4)", [name, line, options[:owner], token])
    line
  end
end

def work(options, session)
  claim, token = session.acquire(options[:name], options[:wait])
  puts "holding #{options[:name]} under token #{token}"
  conn = PG.connect(options[:database_url])
  options[:lines].times do
    session.check
    if options[:ask]
      puts "press Enter to write"
      $stdin.gets
    end
    line = write(conn, options, claim, token)
    puts "wrote line #{line} under token #{token}"
  end
ensure
  conn&.close
end

def options_from(args)
  options = { database_url: "", owner: "worker.rb", ttl: 15.0, wait: 0.0, fence: "verify", lines: 3, ask: false }
  parser = OptionParser.new do |o|
    o.banner = "Writes lines of a report while holding a lease of Tenure's, in plain SQL.\n\nusage: worker.rb [options] NAME\n\n"
    o.on("--database-url URL", "postgres://...; default: what libpq's PG* variables say")
    o.on("--owner OWNER", "label shown to others, never proof (default: worker.rb)")
    o.on("--ttl SECONDS", Float, "the lease ends so long after the last renewal (default: 15)")
    o.on("--wait SECONDS", Float, "how long to wait while it is held (default: not at all)")
    o.on("--fence HOW", %w[verify enter], "how a write is checked: verify, enter (default: verify)")
    o.on("--lines N", Integer, "how many lines to write (default: 3)")
    o.on("--ask", "wait for Enter before each write, after the look at the clock")
    o.separator "\nexit codes: 0 all lines written; 75 somebody else held the lease until --wait ended; 76 the lease was lost, or a write\n" \
                "was refused: nothing was written then; 1 anything else; 2 the command line."
  end
  names = parser.parse(args, into: parsed = {})
  raise OptionParser::MissingArgument, "NAME (--help says more)" unless names.size == 1

  parsed.each { |key, value| options[key.to_s.tr("-", "_").to_sym] = value }
  options.merge(name: names.first)
end

def main(args)
  options = options_from(args)
  session = Session.new(options[:database_url], options[:owner], options[:ttl])
  work(options, session)
  0
rescue OptionParser::ParseError => e
  warn e.message
  2
rescue Held => e
  warn "not acquired: #{e.message}"
  75
rescue Lost => e
  warn "stopped: #{e.message}"
  76
rescue PG::Error => e
  state = e.is_a?(PG::ServerError) ? e.result&.error_field(PG::PG_DIAG_SQLSTATE) : nil
  # After an error of the connection it is unknown whether the last line was written: look before repeating it.
  warn "#{state == 'TN010' ? state : 'failed'}: #{e.result&.error_field(PG::PG_DIAG_MESSAGE_PRIMARY) || e.message}"
  state == "TN010" ? 76 : 1
ensure
  session&.close(options[:name])
end

$stdout.sync = true
exit(main(ARGV)) if $PROGRAM_NAME == __FILE__
