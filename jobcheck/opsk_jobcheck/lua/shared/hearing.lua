-- An answer taken apart, and its texts made harmless.
local MAX_ANSWER = 65536
local function utf8_bytes(hex)
  local code = tonumber(hex, 16)
  if code < 128 then return string.char(code) end
  if code < 2048 then return string.char(192 + math.floor(code / 64), 128 + code % 64) end
  if code >= 55296 and code < 57344 then return "?" end
  return string.char(224 + math.floor(code / 4096), 128 + math.floor(code / 64) % 64, 128 + code % 64)
end

-- What may stand on a terminal or in a record: no control, no direction character, no more than `longest` bytes.
local function harmless(text, longest)
  text = text:gsub("%c", " "):gsub("\194[\128-\159]", "?"):gsub("\226\128[\139-\143\168-\174]", "?")
  text = text:gsub("\226\129[\160-\175]", "?"):gsub("\216\156", "?"):gsub("\239\187\191", "?")
  if #text <= longest then return text end
  return (text:sub(1, longest):gsub("[\192-\255][\128-\191]*$", "")) .. "..."
end

-- Returns the advisor's next answer: its status, and the texts of its rows by their names, in order.
local function hear(talk)
  local a, b, c, d = talk.receive(4):byte(1, 4)
  local size = ((a * 256 + b) * 256 + c) * 256 + d
  if size < 2 or size > MAX_ANSWER then error("answer of wrong length", 0) end
  local body = talk.receive(size)
  if body:find("[\128-\255]") then error("answer is not ASCII", 0) end
  local status, rows = body:match("^opsk " .. VERSION .. " (%l+)\n(.*)$")
  if not status then error("answer of another version", 0) end
  local answer = { status = status, line = {}, comment = {}, action = {}, path = {}, error = {} }
  for name, text in rows:gmatch("(%l+) ([^\n]+)\n") do
    local texts_so_far = answer[name]
    if type(texts_so_far) == "table" then
      texts_so_far[#texts_so_far + 1] = text:gsub("\\u(%x%x%x%x)", utf8_bytes)
    end
  end
  if status == "error" then error("refused: " .. harmless(answer.error[1] or "", 200), 0) end
  return answer
end

local function texts(list, most, longest)
  local found = {}
  for index = 1, math.min(#list, most) do found[index] = harmless(list[index], longest) end
  return found
end
