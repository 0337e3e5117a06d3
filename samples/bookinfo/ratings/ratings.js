// The ratings service: stars per reviewer. Its variants misbehave in ways that a mesh should notice.
//
//   PORT             where to listen, 9080 unless set
//   SERVICE_VERSION  v1 (default) behaves;
//                    v-faulty answers half of the requests with 503;
//                    v-delayed answers half of them only after FAULT_DELAY_MS (7000);
//                    v-unavailable answers 503 for every other FAULT_PERIOD_MS (60000);
//                    v-unhealthy does so with 500, at /health too (900000)
//   ACCESS_LOG       1 (default) logs a line per request to stderr; 0 logs nothing
'use strict';

const http = require('node:http');

const variants = ['v1', 'v-faulty', 'v-delayed', 'v-unavailable', 'v-unhealthy'];
const variant = process.env.SERVICE_VERSION || 'v1';
const accessLog = process.env.ACCESS_LOG !== '0';
const largestBody = 64 * 1024;

function fail(message) {
  console.error(`ratings: ${message}`);
  process.exit(1);
}

function number(name, fallback) {
  const text = process.env[name] || String(fallback);
  if (!/^\d{1,9}$/.test(text)) fail(`${name}=${text}: must be a number`);
  return Number(text);
}

const port = number('PORT', 9080);
const delay = number('FAULT_DELAY_MS', 7000);
const period = number('FAULT_PERIOD_MS', variant === 'v-unhealthy' ? 15 * 60 * 1000 : 60 * 1000);
if (!variants.includes(variant)) fail(`SERVICE_VERSION=${variant}: must be one of ${variants.join(', ')}`);

// Available first, then by turns.
const started = Date.now();
const isDown = () => period > 0 && Math.floor((Date.now() - started) / period) % 2 === 1;
const coin = () => Math.random() < 0.5;

// What has been posted, by product; everything else has the ratings below.
const posted = new Map();
const ratingsOf = (id) => posted.get(id) || { Reviewer1: 5, Reviewer2: 4 };

function answer(response, status, content) {
  const body = JSON.stringify(content);
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) });
  response.end(body);
}

// What is wrong with posted ratings, or null.
function complaint(ratings) {
  if (ratings === null || typeof ratings !== 'object' || Array.isArray(ratings)) return 'the ratings must be an object';
  for (const [reviewer, stars] of Object.entries(ratings)) {
    if (!Number.isInteger(stars) || stars < 0 || stars > 5) return `the stars of ${reviewer} must be from 0 to 5`;
  }
  return null;
}

function read(id, response) {
  const ratings = () => answer(response, 200, { id, ratings: ratingsOf(id) });
  if (variant === 'v-faulty' && coin()) return answer(response, 503, { error: 'ratings is faulty' });
  if (variant === 'v-unavailable' && isDown()) return answer(response, 503, { error: 'ratings is unavailable' });
  if (variant === 'v-unhealthy' && isDown()) return answer(response, 500, { error: 'ratings is unhealthy' });
  if (variant === 'v-delayed' && coin()) return void setTimeout(ratings, delay);
  return ratings();
}

function write(id, request, response) {
  const pieces = [];
  let size = 0;
  request.on('data', (piece) => {
    size += piece.length;
    if (size <= largestBody) pieces.push(piece);
  });
  request.on('end', () => {
    if (size > largestBody) return answer(response, 413, { error: 'the ratings are too large' });
    let ratings;
    try {
      ratings = JSON.parse(Buffer.concat(pieces).toString());
    } catch {
      return answer(response, 400, { error: 'the ratings must be JSON' });
    }
    const wrong = complaint(ratings);
    if (wrong) return answer(response, 400, { error: wrong });
    posted.set(id, ratings);
    return answer(response, 200, { id, ratings });
  });
}

function route(request, response) {
  const path = request.url.split('?')[0];
  if (path === '/health' && request.method === 'GET') {
    if (variant === 'v-unhealthy' && isDown()) return answer(response, 500, { status: 'ratings is not healthy' });
    return answer(response, 200, { status: 'ratings is healthy' });
  }
  if (!path.startsWith('/ratings/')) return answer(response, 404, { error: 'not found' });
  const id = path.slice('/ratings/'.length);
  if (!/^\d{1,9}$/.test(id)) return answer(response, 400, { error: 'the product id must be a number' });
  if (request.method === 'GET') return read(Number(id), response);
  if (request.method === 'POST') return write(Number(id), request, response);
  return answer(response, 405, { error: 'only GET and POST' });
}

const server = http.createServer((request, response) => {
  if (accessLog) {
    response.on('finish', () => console.error(`${request.method} ${request.url} ${response.statusCode}`));
  }
  route(request, response);
});
// Longer than the pools of clients keep idle connections, so that it is they who close them.
server.keepAliveTimeout = 75 * 1000;
server.on('error', (error) => fail(`listen on port ${port}: ${error.message}`));
server.listen(port, '0.0.0.0');

for (const signal of ['SIGTERM', 'SIGINT']) {
  process.on(signal, () => {
    server.close(() => process.exit(0));
    server.closeIdleConnections();
    // Delayed answers may be on their way; they get a moment, not the whole delay.
    setTimeout(() => process.exit(0), 2000).unref();
  });
}
