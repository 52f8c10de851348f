-- An answer taken apart, and its texts made harmless.
local MAX_ANSWER = 65536
local function utf8_bytes(code)
  if code < 128 then return string.char(code) end
  if code < 2048 then return string.char(192 + math.floor(code / 64), 128 + code % 64) end
  if code >= 55296 and code < 57344 then return "?" end
  return string.char(224 + math.floor(code / 4096), 128 + math.floor(code / 64) % 64, 128 + code % 64)
end

local UNESCAPES = { b = " ", f = " ", n = "\n", r = "\r", t = "\t" }
local read_value

local function read_text(text, at)
  local parts = {}
  while true do
    local plain, mark, after = text:match('^([^"\\]*)(["\\])()', at)
    if not plain then error("text without end") end
    parts[#parts + 1] = plain
    if mark == '"' then return table.concat(parts), after end
    local code = text:match("^u(%x%x%x%x)", after)
    local sign = text:sub(after, after)
    parts[#parts + 1] = code and utf8_bytes(tonumber(code, 16)) or UNESCAPES[sign] or sign
    at = after + (code and 5 or 1)
  end
end

local function read_list(text, at, depth, closing)
  local found = {}
  at = text:match("^%s*()", at)
  if text:sub(at, at) == closing then return found, at + 1 end
  while true do
    local name = #found + 1
    if closing == "}" then
      name, at = read_text(text, text:match('^%s*"()', at) or error("no name"))
      at = text:match("^%s*:()", at) or error("no colon")
    end
    found[name], at = read_value(text, at, depth + 1)
    local mark, after = text:match("^%s*([,%]}])()", at)
    if mark == closing then return found, after end
    if mark ~= "," then error("no comma") end
    at = after
  end
end

read_value = function(text, at, depth)
  if depth > 4 then error("nested too deeply") end
  local sign, after = text:match("^%s*(.)()", at)
  if sign == '"' then return read_text(text, after) end
  if sign == "{" then return read_list(text, after, depth, "}") end
  if sign == "[" then return read_list(text, after, depth, "]") end
  local word, behind = text:match("^%s*([%w%.%+%-]+)()", at)
  if not word then error("no value") end
  if word == "null" then return false, behind end
  if word == "true" or word == "false" then return word == "true", behind end
  return tonumber(word) or error("no number"), behind
end

-- What may stand on a terminal or in a record: no control, no direction character, no more than `longest` bytes.
local function harmless(text, longest)
  text = text:gsub("%c", " "):gsub("\194[\128-\159]", "?"):gsub("\226\128[\139-\143\168-\174]", "?")
  text = text:gsub("\226\129[\160-\175]", "?"):gsub("\216\156", "?"):gsub("\239\187\191", "?")
  if #text <= longest then return text end
  return (text:sub(1, longest):gsub("[\192-\255][\128-\191]*$", "")) .. "..."
end

-- Returns the advisor's next answer.
local function hear(talk)
  local a, b, c, d = talk.receive(4):byte(1, 4)
  local size = ((a * 256 + b) * 256 + c) * 256 + d
  if size < 2 or size > MAX_ANSWER then error("answer of wrong length", 0) end
  local body = talk.receive(size)
  if body:find("[\128-\255]") then error("answer is not ASCII", 0) end
  local answer = read_value(body, 1, 1)
  if type(answer) ~= "table" or answer.v ~= VERSION then error("answer of another version", 0) end
  if answer.status == "error" then error("refused: " .. harmless(tostring(answer.error), 200), 0) end
  return answer
end

local function texts(list, most, longest)
  local found = {}
  for index = 1, math.min(type(list) == "table" and #list or 0, most) do
    if type(list[index]) == "string" then found[#found + 1] = harmless(list[index], longest) end
  end
  return found
end
