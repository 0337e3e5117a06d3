# The details service: facts about a book. It answers with WEBrick, which writes the head and the
# body of a response apart, and whether that stalls its clients is what the switches below are about.
#
#   PORT        where to listen, 9080 unless set
#   NODELAY     1 (default) sets TCP_NODELAY on accepted connections; 0 leaves Nagle's algorithm on
#   WRITES      2 (default) is WEBrick's way: head, then body; 1 sends both in one write
#   ACCESS_LOG  1 (default) logs a line per request to stderr; 0 logs nothing

require 'json'
require 'socket'
require 'stringio'
require 'webrick'

def switch(name, default, allowed)
  value = ENV.fetch(name, default)
  return value if allowed.include?(value)

  abort "details: #{name}=#{value}: must be #{allowed.join(' or ')}"
end

PORT = Integer(ENV.fetch('PORT', '9080'), exception: false) || abort('details: PORT must be a number')
NODELAY = switch('NODELAY', '1', %w[0 1]) == '1'
WRITES = switch('WRITES', '2', %w[1 2]).to_i
ACCESS_LOG = switch('ACCESS_LOG', '1', %w[0 1]) == '1'

# Collects a response and sends it in one piece.
class WholeResponse < WEBrick::HTTPResponse
  def send_response(socket)
    whole = StringIO.new(String.new(encoding: Encoding::BINARY))
    super(whole)
    socket.write(whole.string)
  rescue Errno::EPIPE, Errno::ECONNRESET
    @keep_alive = false
  end
end

# WEBrick's server with the kind of response that WRITES asks for.
class Server < WEBrick::HTTPServer
  def create_response(config)
    WRITES == 1 ? WholeResponse.new(config) : super
  end
end

# GET /details/ID
class Details < WEBrick::HTTPServlet::AbstractServlet
  def do_GET(request, response)
    response['Content-Type'] = 'application/json'
    id = request.path_info.delete_prefix('/')
    if id.match?(/\A\d{1,9}\z/)
      response.body = JSON.generate(book(id.to_i))
    else
      response.status = 400
      response.body = JSON.generate(error: 'the product id must be a number')
    end
  end

  private

  def book(id)
    {
      id: id,
      author: 'William Shakespeare',
      year: 1595,
      type: 'paperback',
      pages: 200,
      publisher: 'PublisherA',
      language: 'English',
      'ISBN-10': '1234567890',
      'ISBN-13': '123-1234567890'
    }
  end
end

# GET /health
class Health < WEBrick::HTTPServlet::AbstractServlet
  def do_GET(_request, response)
    response['Content-Type'] = 'application/json'
    response.body = JSON.generate(status: 'details is healthy')
  end
end

server = Server.new(
  BindAddress: '0.0.0.0',
  Port: PORT,
  # A thread per connection; beyond the default of 100 the others would wait without a word.
  MaxClients: 1024,
  # How long a kept connection may be idle, in seconds: longer than clients' pools keep it.
  RequestTimeout: 75,
  Logger: WEBrick::Log.new($stderr, WEBrick::BasicLog::WARN),
  AccessLog: ACCESS_LOG ? [[$stderr, '%t %m %U %s %b']] : [],
  AcceptCallback: lambda { |socket|
    socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, NODELAY ? 1 : 0)
  }
)
server.mount('/details', Details)
server.mount('/health', Health)
%w[TERM INT].each { |signal| trap(signal) { server.shutdown } }
server.start
